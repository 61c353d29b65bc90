"""A tree of regions that grows online, with a learner in each; `piecewise` is the model."""
