"""Campaigns of tiered storage."""
