"""Helpers that several tests share: the oracle, the contract table, drawn models, memory use."""
