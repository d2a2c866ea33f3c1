"""Campaigns: long or destructive runs, browser tours, and tables about other programs, which `make campaign` starts."""
