"""Campaigns about the election of masters."""
