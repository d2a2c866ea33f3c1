"""Integrations with frameworks under kills."""
