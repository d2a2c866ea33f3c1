"""Alerts: rules over the checks and groups of a cluster, sent to webhooks, mail and commands."""
