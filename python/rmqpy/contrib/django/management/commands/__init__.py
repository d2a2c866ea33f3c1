"""Commands of `manage.py`, one file each."""
