"""Learners around a learner: intervals, several targets, late answers, outliers, changes."""
