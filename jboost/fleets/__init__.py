"""One model for each of very many named streams.

`fleet` has the public face, and `ray` the same over several processes. `columns` makes `names` of
what a user passes, `directory` numbers them, `streams` has the states in several `versions`,
`program` and `loops` run them, `shards` keeps them in a folder, and `averages` makes a start for
new streams. May import from `core` to `sweeps`.
"""
