"""Combiners: learners whose inputs are the m predictions of a booster.

`mean` holds the plain mean and what makes a combiner of any learner, `convex` mixes with regret
bounds, `refined` corrects such a mix by least squares, and `scaled` combines in the units of the
target. May import from `core`, `learners` and `transforms`.
"""
