"""Reads on the caller's demand: the polling consumer, range reads and the catalog."""
