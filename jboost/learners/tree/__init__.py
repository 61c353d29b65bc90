"""A tree of regions that grows online, with a learner in each.

`piecewise` is the model, `state` what it has learned, `path` the nodes that an input passes and
their estimates, `shares` how much of a subtree or of an input counts, `splits` where a region is
split.
"""
