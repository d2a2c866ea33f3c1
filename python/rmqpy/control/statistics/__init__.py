"""Statistics: rates and totals of topics, groups and the whole broker."""
