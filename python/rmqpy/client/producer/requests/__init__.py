"""Requests of a producer: messages whose sender waits for a reply."""
