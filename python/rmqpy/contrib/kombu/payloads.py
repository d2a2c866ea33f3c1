"""Payloads: kombu's messages as RocketMQ's, with topic, tag, key and due time.

A payload is the JSON of kombu's dictionary. Pure.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from kombu.utils.json import dumps, loads

from rmqpy._native import ReceivedMessage
from rmqpy.message import Message

#: The longest delay that brokers accept by default is three days (`timerMaxDelaySec`). Longer ones take several steps.
DELAY_MAX: Final = timedelta(days=3) - timedelta(minutes=1)
#: The property of a message that is due before its task.
STEP: Final = "kombu_step"
_TAG: Final = re.compile(r"[\w.\-]{1,127}", re.ASCII)


def topic_of_queue(queue: str) -> str:
    """Return the topic of a queue. Characters that topics lack are encoded as in URLs.

    >>> topic_of_queue("celery"), topic_of_queue("images.high")
    ('celery', 'images%2Ehigh')
    """
    return quote(queue, safe="").replace(".", "%2E").replace("~", "%7E")


def topic_of_exchange(exchange: str) -> str:
    """Return the topic that copies of an exchange's messages are read from.

    >>> topic_of_exchange("celeryev"), topic_of_exchange("")
    ('exchange-celeryev', 'exchange-default')
    """
    return f"exchange-{topic_of_queue(exchange or 'default')}"


def tag_of(routing_key: str) -> str:
    """Return the tag of a routing key: itself, or its hash if it is not a valid tag."""
    return routing_key if _TAG.fullmatch(routing_key) else hashlib.sha1(routing_key.encode()).hexdigest()


def encode(payload: dict[str, Any], topic: str, *, tag: str | None = None) -> Message:
    """Return the message of a payload. A task with an ETA is due at that time."""
    headers = payload.get("headers") or {}
    properties = {}
    deliver_at = None
    if (eta := _eta(headers)) is not None and (now := datetime.now(UTC)) < eta:
        # Brokers know milliseconds, and the task may not start early.
        deliver_at = min(eta + timedelta(microseconds=999), now + DELAY_MAX)
        if deliver_at < eta:
            properties[STEP] = "1"
    task = headers.get("task")
    key = str(headers.get("id") or "")
    if tag is None and isinstance(task, str) and _TAG.fullmatch(task):
        tag = task
    return Message(
        topic,
        dumps(payload).encode(),
        tag=tag,
        keys=[key] if _TAG.fullmatch(key) else [],
        properties=properties,
        deliver_at=deliver_at,
    )


def decode(message: ReceivedMessage) -> dict[str, Any]:
    """Return the payload of a message. An ETA that has passed is removed: the worker would wait for its timers. Raises
    `ValueError` for other messages."""
    payload = loads(message.body)
    if not isinstance(payload, dict) or not isinstance(payload.get("properties"), dict):
        raise ValueError("it was not sent by kombu")
    payload["properties"].setdefault("delivery_info", {})["redelivered"] = message.delivery_attempt > 1
    headers = payload.get("headers") or {}
    if (eta := _eta(headers)) is not None and eta <= datetime.now(UTC):
        headers["eta"] = None
    return payload


def is_step(message: ReceivedMessage, payload: dict[str, Any]) -> bool:
    """Return whether a message has to wait again, because its task is due later than the longest delay."""
    return STEP in message.properties and _eta(payload.get("headers") or {}) is not None


def _eta(headers: dict[str, Any]) -> datetime | None:
    """The ETA of a task. One without a time zone is left to the worker, which knows the zone of its application."""
    try:
        eta = datetime.fromisoformat(headers["eta"])
    except (KeyError, TypeError, ValueError):
        return None
    return eta.astimezone(UTC) if eta.tzinfo is not None else None
