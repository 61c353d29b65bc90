"""What belongs to the paper alone: its theory, streams, data sets, report and demonstration.

May import from `core` to `running`, and `plots`.
"""
