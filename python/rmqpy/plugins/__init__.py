"""Plug-ins: the interface of extensions that a broker loads by name.

A plug-in is a class that an installed distribution names in the entry point group `rmqpy.plugins`; the setting
`plugins` of a broker lists those to load. There are three kinds: an `Observer` gets batches of new messages and may
miss some, a `LogFollower` gets every message of the log in order, and a `Policy` is asked before topics and groups are
created.

Each plug-in is called on threads that call nothing else, one call at a time. Exceptions are logged and counted; after
five in a row the broker pauses the calls. No plug-in can delay a send or a pull.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple

from rmqpy.message import ReceivedMessage

__all__ = [
    "API_VERSION",
    "Commit",
    "Context",
    "GroupRequest",
    "LogFollower",
    "Observer",
    "Plugin",
    "Policy",
    "TopicRequest",
]

#: The version of this interface. It grows when a plug-in for the earlier one would no longer work.
API_VERSION: Final = 1

Origin = Literal["administrator", "client"]


@dataclass(frozen=True, slots=True)
class Context:
    """The broker that loads a plug-in."""

    #: The name of the plug-in, as in the setting `plugins`.
    name: str
    cluster: str
    broker: str
    #: 0 for a master.
    broker_id: int
    #: A folder for the plug-in's files, in the broker's data folder. It exists.
    folder: Path
    #: The plug-in's table in the file of the setting `pluginsFile`; empty without one.
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> logging.Logger:
        """A logger whose lines appear in the broker's log."""
        return logging.getLogger(f"rmqpy.plugins.{self.name}")


class Plugin:
    """The common part of all kinds; derive from one of the kinds. The broker calls the class without arguments."""

    #: The `API_VERSION` that the plug-in was written for. Each plug-in must set it.
    api_version: ClassVar[int]

    def open(self, context: Context) -> None:
        """Prepare for calls. The first call of the broker; repeated after an exception."""

    def close(self) -> None:
        """Release everything. The last call of the broker, if `open` succeeded."""


class Commit(NamedTuple):
    """The progress of a consumer group in one queue."""

    group: str
    topic: str
    queue_id: int
    #: The offset of the next message to consume.
    offset: int


class Observer(Plugin, ABC):
    """A plug-in that gets batches of new messages, and skips messages rather than delay anything.

    It observes messages that were sent after the broker's start.
    """

    #: The topics to observe; `None`: all but the broker's own.
    topics: ClassVar[Collection[str] | None] = None
    #: How far it may be behind, in bytes of the log, from 1 MiB to 1 GiB. Beyond that it skips messages.
    behind_bytes: ClassVar[int] = 16 << 20

    @abstractmethod
    def sent(self, messages: Sequence[ReceivedMessage]) -> None:
        """Observe at most 256 messages that consumers can see now, in the order of the log."""

    def consumed(self, commits: Sequence[Commit]) -> None:
        """Observe at most 1,000 offsets that changed; called about once a second, if the plug-in defines it."""


class LogFollower(Plugin, ABC):
    """A plug-in that gets every message of the broker's log, in order and at least once.

    It never skips a message: it lags. The broker keeps its position, also while the plug-in is not loaded; messages
    that retention deletes meanwhile are missed, which the broker logs, counts and reports.
    """

    #: The topics to follow; `None`: all but the broker's own. Messages that come from delays and transactions are in
    #: their topic when consumers can see them.
    topics: ClassVar[Collection[str] | None] = None
    #: Where the first start begins: with the oldest message, or after the newest.
    begins: ClassVar[Literal["oldest", "newest"]] = "oldest"
    #: The most messages of a batch, from 1 to 10,000. A batch has at most 4 MiB, or one message.
    batch: ClassVar[int] = 1_000

    @abstractmethod
    def keep(self, messages: Sequence[ReceivedMessage]) -> None:
        """Keep a batch. After the return the broker saves the position behind it.

        After an exception, a crash or a kill it gets the same messages again, perhaps in other batches: identify them
        by `commit_log_offset`, which grows.
        """


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """A topic to be created or changed."""

    name: str
    read_queues: int
    write_queues: int
    attributes: Mapping[str, str]
    #: False for a change of an existing topic.
    is_new: bool
    #: An administrator's request, or the first use by a client.
    origin: Origin
    #: The user and the address of an administrator's request; the user with access control only.
    user: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A consumer group to be created or changed."""

    name: str
    #: The most deliveries of a message after the first.
    retries_max: int
    #: False for a change of an existing group.
    is_new: bool
    #: An administrator's request, or the first use by a client.
    origin: Origin
    #: The user and the address of an administrator's request; the user with access control only.
    user: str | None = None
    address: str | None = None


class Policy(Plugin):
    """A plug-in that is asked before a topic or group is created or changed. The retry and dead-letter topics of a
    group follow the decision about the group."""

    #: What counts if the plug-in fails, or does not answer in time. Each policy must set it.
    on_failure: ClassVar[Literal["refuse", "allow"]]
    #: Seconds to answer, up to 2.0.
    time_limit: ClassVar[float] = 0.5

    def topic(self, request: TopicRequest) -> str | None:
        """Return the reason to refuse a topic, which the client sees, or `None` to allow it."""

    def group(self, request: GroupRequest) -> str | None:
        """Return the reason to refuse a group, which the client sees, or `None` to allow it."""
