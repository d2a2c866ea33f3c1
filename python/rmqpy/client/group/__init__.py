"""Membership of a consumer group: the other members, and the queues of each."""
