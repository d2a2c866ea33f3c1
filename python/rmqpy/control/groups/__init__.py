"""Consumer groups: their configuration, offsets, progress and queue locks."""
