"""Settings of each role, and the files they and other small tables live in."""
