"""Topics: their configuration, and the built-in ones."""
