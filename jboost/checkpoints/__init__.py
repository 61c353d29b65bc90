"""Keeping a run in one file: what is written, how it is described, and how nothing is lost."""
