"""Combiners: learners whose inputs are the m predictions of a booster.

`mean` holds the plain mean and what makes a combiner of any learner, `convex` mixes with regret
bounds, and `refined` has combiners around others: a mix that least squares corrects, and the units
of the target. May import from `core`, `learners` and `transforms`.
"""
