"""Settings of each role, and the files that hold them and other small tables."""
