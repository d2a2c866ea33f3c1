"""Tiered storage: full files of the commit log in a folder or an object store, and reads from there."""
