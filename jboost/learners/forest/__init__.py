"""Gradient boosting of trees on a stream.

`bins` cuts columns into quantiles, `trees` walks trees, `splits` finds the best splits of nodes,
`memory` keeps the latest rows and the tree that is being grown, and `boosted` is the learner.
"""
