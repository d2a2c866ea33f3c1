"""Backups: copies of a running broker's data in a folder, and brokers restored from them."""
