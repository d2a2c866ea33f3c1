"""Access control of a broker: users, their policies, and what the native half makes of them."""
