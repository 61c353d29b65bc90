"""What a run did, to look at: accounts, pictures, pages, and the peers beside it."""
