"""Settings of a model chosen by gradients of the error of whole runs.

May import from `core` to `fleets`.
"""
