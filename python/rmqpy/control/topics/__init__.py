"""Topics: their configuration, and which there are from the start."""
