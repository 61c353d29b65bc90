"""The command without standard streams, descriptors or memory: a sentence and an exit status."""
