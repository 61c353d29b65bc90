"""The booster and the paper's six models.

`booster` is the chain of learners, `emphasis` computes the weight λ of each, `modes` says how λ is
spent, `copies` runs many learners of one kind as one. May import from `core`, `learners`,
`transforms` and `combiners`.
"""
