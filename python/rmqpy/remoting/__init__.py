"""Python side of the native network: request dispatch, and calls to peers."""
