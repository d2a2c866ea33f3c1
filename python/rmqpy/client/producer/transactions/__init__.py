"""Transactions of a producer: half messages, their ends, and checks by brokers."""
