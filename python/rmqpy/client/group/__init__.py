"""Membership of a consumer group: the other members, and the share of queues of each."""
