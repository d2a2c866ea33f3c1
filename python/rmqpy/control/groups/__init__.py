"""Consumer groups: their configuration, their offsets, their progress, and the queues they lock."""
