"""The protocols (Learner, Transform, Network) and the tools that every other room is built with.

Numerics, linear algebra of the inner loop, random draws, metrics, argument checks and state
templates live here. This room imports from no other.
"""
