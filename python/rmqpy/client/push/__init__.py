"""Push consumers: they call a handler for each message."""
