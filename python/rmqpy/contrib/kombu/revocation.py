"""Revocation: tasks that wait at the broker are recalled when Celery revokes them.

Celery makes its workers ignore a revoked task, which they forget when they stop. A recalled task never arrives.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from typing import Any

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.contrib.kombu.green import blocking
from rmqpy.contrib.kombu.link import Link
from rmqpy.protocol import names

log = logging.getLogger(__name__)


@blocking
def recall_tasks(link: Link, exchange: str, payload: dict[str, Any]) -> None:
    """Recall the tasks that a broadcast of Celery's remote control revokes. A task that cannot be recalled is left to
    the workers."""
    for task in _revoked(exchange, payload):
        try:
            for message in link.admin.messages_by_key(names.TIMER_TOPIC, task):
                _recall(link, message)
        except errors.RocketMQError as error:
            log.debug("task %s is not recalled: %s", task, error)


def _revoked(exchange: str, payload: dict[str, Any]) -> Iterator[str]:
    """The ids of the tasks that a broadcast revokes."""
    if not exchange.endswith(".pidbox") or not isinstance(body := payload.get("body"), str):
        return
    try:
        command = json.loads(body)
    except ValueError:
        return
    if isinstance(command, dict) and command.get("method") == "revoke":
        tasks = (command.get("arguments") or {}).get("task_id") or ()
        for task in [tasks] if isinstance(tasks, str) else tasks:
            if isinstance(task, str):
                yield task


def _recall(link: Link, message: ReceivedMessage) -> None:
    properties = message.properties
    topic, due = properties.get("REAL_TOPIC"), properties.get("TIMER_OUT_MS")
    if topic and due:
        # As in the handles that brokers write: a millisecond after the start of the second in which it is due.
        fields = ("v1", topic, message.queue.broker, str(int(due) + 1), message.message_id)
        handle = base64.urlsafe_b64encode(" ".join(fields).encode()).decode()
        link.recall(link.plain_name(topic), handle)
