"""Consumers that call a handler for each message."""
