"""Integrations with frameworks, each with the real framework and a real broker."""
