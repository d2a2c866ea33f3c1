"""Plug-ins of a running broker: observers, followers of the log, and policies, each with separate threads."""
