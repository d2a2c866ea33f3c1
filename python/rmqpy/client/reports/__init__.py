"""Reports in the log: outages once a minute, and handler failures on stderr where logging is not configured."""
