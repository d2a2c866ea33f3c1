"""Producers: sends, retries and outcomes, for threads and for event loops."""
