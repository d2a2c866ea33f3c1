"""Plug-ins of real brokers, installed as distributions in temporary folders."""
