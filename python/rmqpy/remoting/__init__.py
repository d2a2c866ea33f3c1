"""The Python ends of the native network: dispatch of what comes up, and calls to other peers."""
