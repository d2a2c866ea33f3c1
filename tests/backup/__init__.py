"""Tests of backups and restores."""
