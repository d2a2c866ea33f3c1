"""The role of a broker, and the copies that a slave has beside the log."""
