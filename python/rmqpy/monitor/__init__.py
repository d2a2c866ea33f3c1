"""Monitoring of a process: metrics and health over HTTP, logs as JSON lines."""
