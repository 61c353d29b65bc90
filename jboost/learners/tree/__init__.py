"""A tree of regions, grown online, with a learner in each."""
