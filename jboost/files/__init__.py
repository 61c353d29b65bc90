"""Streams that come in files, tables, pipes and rows, and the predictions written beside them."""
