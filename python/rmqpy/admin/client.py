"""`Admin` and `AsyncAdmin`: everything an operator asks a cluster, for threads and for event loops.

Owns the connections, and the two tables of public methods. The work is written once, as coroutines in the parts
(`Topics`, `Groups`, …); the blocking twin drives the same coroutine to its end in the caller's thread. Threads: an
`Admin` any, an `AsyncAdmin` the one of its loop.
"""

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rmqpy._native import Client
from rmqpy.admin.cluster import Cluster
from rmqpy.admin.dead_letters import DeadLetters
from rmqpy.admin.groups import Groups
from rmqpy.admin.health import Health
from rmqpy.admin.link import Link, Part
from rmqpy.admin.messages import Messages
from rmqpy.admin.settings import ServerSettings
from rmqpy.admin.topics import Topics
from rmqpy.config.client import Address, ClientConfig
from rmqpy.errors import ClosedError
from rmqpy.remoting.client import BlockingCaller, LoopCaller, run

T = TypeVar("T", bound=Part)
P = ParamSpec("P")
R = TypeVar("R")


class _Connected:
    """A native client, and the link over it."""

    def __init__(self, namesrv: Address | ClientConfig | None = None) -> None:
        self._config = ClientConfig.of(namesrv)
        self._client = Client(
            connect_timeout_ms=round(self._config.connect_timeout * 1_000),
            binary=self._config.header == "binary",
        )
        self._opened: Link | None = None

    def _link(self) -> Link:
        if self._opened is None:
            raise ClosedError("the admin is closed")
        return self._opened


def _blocking(
    part: type[T], work: Callable[Concatenate[T, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate["Admin", P], R]:
    """The method of `Admin` that does this work."""

    @functools.wraps(work)
    def method(self: "Admin", /, *args: P.args, **settings: P.kwargs) -> R:
        return run(work(part(self._link()), *args, **settings))

    return method


def _iterating(
    part: type[T], search: Callable[Concatenate[T, P], AsyncIterator[R]]
) -> Callable[Concatenate["Admin", P], Iterator[R]]:
    """The same for work that finds one thing after the other."""

    @functools.wraps(search)
    def method(self: "Admin", /, *args: P.args, **settings: P.kwargs) -> Iterator[R]:
        found = search(part(self._link()), *args, **settings)

        async def following() -> R:
            return await anext(found)

        while True:
            try:
                yield run(following())
            except StopAsyncIteration:
                return

    return method


def _awaited(
    part: type[T], work: Callable[Concatenate[T, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate["AsyncAdmin", P], Coroutine[Any, Any, R]]:
    """The method of `AsyncAdmin` that does this work."""

    @functools.wraps(work)
    def method(self: "AsyncAdmin", /, *args: P.args, **settings: P.kwargs) -> Coroutine[Any, Any, R]:
        return work(part(self._link()), *args, **settings)

    return method


def _searching(
    part: type[T], search: Callable[Concatenate[T, P], AsyncIterator[R]]
) -> Callable[Concatenate["AsyncAdmin", P], AsyncIterator[R]]:
    """The same for work that finds one thing after the other."""

    @functools.wraps(search)
    def method(self: "AsyncAdmin", /, *args: P.args, **settings: P.kwargs) -> AsyncIterator[R]:
        return search(part(self._link()), *args, **settings)

    return method


class Admin(_Connected):
    """Looks after a cluster: topics, groups, messages, brokers, settings.

    ::

        with rmqpy.Admin("127.0.0.1:9876") as admin:
            admin.create_topic("orders", write_queues=16, read_queues=16)
            for row in admin.progress("billing"):
                print(row.topic, row.queue_id, row.lag)

    Raises `NameServerUnreachable`, `ConnectError` and `RequestTimeout` for servers that are away, `TopicNotFound` and
    `GroupNotFound`, `AuthError`, and `BrokerError` with the broker's words for everything it refuses. Any thread.
    """

    def __init__(self, namesrv: Address | ClientConfig | None = None) -> None:
        super().__init__(namesrv)
        self._opened = Link(BlockingCaller(self._client), self._config)

    topics = _blocking(Topics, Topics.names)
    topic = _blocking(Topics, Topics.describe)
    topic_settings = _blocking(Topics, Topics.settings)
    route = _blocking(Topics, Topics.route)
    create_topic = _blocking(Topics, Topics.create)
    update_topic = _blocking(Topics, Topics.alter)
    delete_topic = _blocking(Topics, Topics.delete)

    groups = _blocking(Groups, Groups.names)
    group = _blocking(Groups, Groups.describe)
    create_group = _blocking(Groups, Groups.create)
    update_group = _blocking(Groups, Groups.alter)
    delete_group = _blocking(Groups, Groups.delete)
    progress = _blocking(Groups, Groups.progress)
    members = _blocking(Groups, Groups.members)
    reset_offsets = _blocking(Groups, Groups.reset)
    skip_backlog = _blocking(Groups, Groups.skip)
    clone_offsets = _blocking(Groups, Groups.clone)

    message = _blocking(Messages, Messages.get)
    messages_by_key = _blocking(Messages, Messages.by_key)
    messages_between = _iterating(Messages, Messages.between)

    dead_letters = _blocking(DeadLetters, DeadLetters.piles)
    dlq = _iterating(DeadLetters, DeadLetters.messages)
    resend = _blocking(DeadLetters, DeadLetters.resend)

    brokers = _blocking(Cluster, Cluster.brokers)
    clients = _blocking(Cluster, Cluster.clients)
    health = _blocking(Health, Health.cluster)
    topic_health = _blocking(Health, Health.topic)
    broker_health = _blocking(Health, Health.broker)

    broker_config = _blocking(ServerSettings, ServerSettings.of_broker)
    update_broker_config = _blocking(ServerSettings, ServerSettings.change_broker)
    namesrv_config = _blocking(ServerSettings, ServerSettings.of_name_servers)
    update_namesrv_config = _blocking(ServerSettings, ServerSettings.change_name_servers)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._opened = None
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncAdmin(_Connected):
    """`Admin` with coroutines, for the event loop it is entered in.

    ::

        async with rmqpy.AsyncAdmin("127.0.0.1:9876") as admin:
            print(await admin.topics())
    """

    topics = _awaited(Topics, Topics.names)
    topic = _awaited(Topics, Topics.describe)
    topic_settings = _awaited(Topics, Topics.settings)
    route = _awaited(Topics, Topics.route)
    create_topic = _awaited(Topics, Topics.create)
    update_topic = _awaited(Topics, Topics.alter)
    delete_topic = _awaited(Topics, Topics.delete)

    groups = _awaited(Groups, Groups.names)
    group = _awaited(Groups, Groups.describe)
    create_group = _awaited(Groups, Groups.create)
    update_group = _awaited(Groups, Groups.alter)
    delete_group = _awaited(Groups, Groups.delete)
    progress = _awaited(Groups, Groups.progress)
    members = _awaited(Groups, Groups.members)
    reset_offsets = _awaited(Groups, Groups.reset)
    skip_backlog = _awaited(Groups, Groups.skip)
    clone_offsets = _awaited(Groups, Groups.clone)

    message = _awaited(Messages, Messages.get)
    messages_by_key = _awaited(Messages, Messages.by_key)
    messages_between = _searching(Messages, Messages.between)

    dead_letters = _awaited(DeadLetters, DeadLetters.piles)
    dlq = _searching(DeadLetters, DeadLetters.messages)
    resend = _awaited(DeadLetters, DeadLetters.resend)

    brokers = _awaited(Cluster, Cluster.brokers)
    clients = _awaited(Cluster, Cluster.clients)
    health = _awaited(Health, Health.cluster)
    topic_health = _awaited(Health, Health.topic)
    broker_health = _awaited(Health, Health.broker)

    broker_config = _awaited(ServerSettings, ServerSettings.of_broker)
    update_broker_config = _awaited(ServerSettings, ServerSettings.change_broker)
    namesrv_config = _awaited(ServerSettings, ServerSettings.of_name_servers)
    update_namesrv_config = _awaited(ServerSettings, ServerSettings.change_name_servers)

    async def close(self) -> None:
        """Close the connections; whoever waits gets `ClosedError`. Idempotent."""
        if self._opened is not None:
            link, self._opened = self._opened, None
            assert isinstance(link.caller, LoopCaller), "made by __aenter__"
            link.caller.close()
        self._client.close()

    async def __aenter__(self) -> Self:
        self._opened = Link(LoopCaller(self._client), self._config)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
