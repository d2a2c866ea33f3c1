"""Lifetime of clients: closing, warnings for clients left open, and closing in an event loop."""
