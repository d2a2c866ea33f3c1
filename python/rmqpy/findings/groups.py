"""Findings about the consumers of a group."""

from datetime import UTC, datetime

from rmqpy.findings.finding import Finding


def no_consumer(group: str, lag: int) -> Finding:
    """A group with pending messages and no member.

    >>> print(no_consumer("billing", 12))
    12 messages are pending and no member is online; start a consumer of billing
    """
    verb = "1 message is" if lag == 1 else f"{lag} messages are"
    return Finding(f"{verb} pending and no member is online", f"start a consumer of {group}")


def given_up(group: str, messages: int, last: datetime) -> Finding:
    """A group with new dead letters.

    >>> print(given_up("billing", 2, datetime(2026, 1, 31, 12, 3, tzinfo=UTC)).found)
    2 messages were given up after their last attempt, the newest at 2026-01-31 12:03 UTC
    """
    subject, whose = ("1 message was", "its") if messages == 1 else (f"{messages} messages were", "their")
    return Finding(
        f"{subject} given up after {whose} last attempt, the newest at {last.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        f"read the causes with rmqpy dlq list {group}, and send them again once these are gone",
    )


def consumption_disabled(group: str) -> Finding:
    """A group whose members may not consume."""
    return Finding("consumption is disabled for the group", f"rmqpy group alter {group} --consume")


def subscriptions_differ() -> Finding:
    """A group whose members subscribe to different topics or tags."""
    return Finding(
        "members have different subscriptions, so some messages reach no member",
        "use the same subscriptions in all of them",
    )


def hot_queue(queue: str, share: float) -> Finding:
    """A group whose backlog is in one queue of several.

    >>> print(hot_queue("broker-a:3", 0.95).found)
    95 % of the pending messages are in one queue, broker-a:3
    """
    return Finding(
        f"{100 * share:.0f} % of the pending messages are in one queue, {queue}",
        "look at the thread stacks of its member; if one message key gets most of the traffic, spread it over queues",
    )


def waiting_queue(queue: str, offset: int, behind_s: float) -> Finding:
    """A queue that waits at one message while the group's other queues are current.

    >>> print(waiting_queue("broker-a:3", 42, 600).found)
    queue broker-a:3 waits at offset 42, whose message is 10 min old; the other queues are current
    """
    return Finding(
        f"queue {queue} waits at offset {offset}, whose message is {behind_s / 60:.0f} min old; the other queues are "
        "current",
        "look at the message and at the thread stacks of the queue's member: its handler blocks, or fails again and "
        "again in order",
    )


def slow_members(lag: int, members: int, behind_s: float) -> Finding:
    """A group whose members are online and behind.

    >>> print(slow_members(900, 2, 125).found)
    900 messages are pending, the oldest for 2 min, and 2 members are online
    """
    online = "1 member is" if members == 1 else f"{members} members are"
    return Finding(
        f"{lag} messages are pending, the oldest for {behind_s / 60:.0f} min, and {online} online",
        "look at their thread stacks; add members, at most one for each queue",
    )
