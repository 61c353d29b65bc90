"""The booster and the paper's six models.

`boost` makes a booster, `booster` is the chain of learners, `emphasis` computes the weight λ of
each, `modes` says how λ is spent, `copies` computes many copies of a learner as one, and `models`
holds the paper's six models. May import from `core`, `learners`, `transforms` and `combiners`.
"""
