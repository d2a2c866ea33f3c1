"""Access control of a broker: users and policies, published to the native module."""
