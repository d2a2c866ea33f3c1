"""The role of a broker, and a slave's copies of data outside the log."""
