"""Light offsets: the offsets of groups that only read light queues, in the form of files and replies.

A light queue has one number for each of those groups, without a queue id. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmqpy.protocol import names

#: The id of every light queue.
QUEUE_ID: Final = 0

#: `topic@group` to queue id to offset.
Table = Mapping[str, Mapping[int, int]]


def split(table: Table) -> tuple[dict[str, Mapping[int, int]], dict[str, int]]:
    """Return the offsets of ordinary groups, and the light ones.

    >>> split({"%LMQ%room@%LMQ%g": {0: 42}, "%LMQ%room@billing": {0: 7}})
    ({'%LMQ%room@billing': {0: 7}}, {'%LMQ%room@%LMQ%g': 42})
    """
    plain, light = {}, {}
    for key, queues in table.items():
        if not names.is_light(key.partition("@")[2]):
            plain[key] = queues
        elif QUEUE_ID in queues:
            light[key] = queues[QUEUE_ID]
    return plain, light


def joined(plain: Table, light: Mapping[str, int]) -> dict[str, Mapping[int, int]]:
    """Return all offsets as one table."""
    return {**plain, **{key: {QUEUE_ID: offset} for key, offset in light.items()}}
