"""Schedules: their table, the times at which they send, and the messages that they put into the timer log."""
