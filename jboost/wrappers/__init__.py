"""Wrappers: learners around a learner.

`intervals` adds prediction intervals, `flags` says what to look at, `detectors` find changes in
numbers, `change` restarts after changes, `robust` bears outliers,
`delayed` waits for late answers, `weights` takes weights from the data or learns part of the
answers, `scored` keeps the score, `memory` forgets less and less, `selftuning` tunes settings,
`targets` predicts several numbers. May import from `core` to `settings`.
"""
