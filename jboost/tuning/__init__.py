"""Hyperparameters that are found: by gradients of a run's error, before it or during it."""
