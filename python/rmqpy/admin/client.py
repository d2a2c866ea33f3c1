"""`Admin` and `AsyncAdmin`: everything an operator asks a cluster, for threads and for event loops.

Owns the connections, and the two tables of public methods. The work is written once, as coroutines in the parts
(`Topics`, `Groups`, …), each imported when it is needed; the blocking twin drives the same coroutine to its end in the
caller's thread. Threads: an `Admin` any, an `AsyncAdmin` the one of its loop.
"""

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar, cast

from rmqpy._native import Client
from rmqpy.admin.link import Link, Part
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


class _Part:
    """A part that is imported when it is first used: a command needs one, and all take a while."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __getattr__(self, work: str) -> "_Work":
        return _Work(self, work)

    def load(self) -> type[Part]:
        part: type[Part] = getattr(import_module(f"rmqpy.admin.{self._module}"), self._name)
        return part


class _Work(NamedTuple):
    """A method of a part."""

    part: _Part
    name: str


class _Method:
    """A method of `Admin` or `AsyncAdmin`, made from its work when it is first asked for."""

    def __init__(
        self, work: object, make: Callable[[type[Part], Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        assert isinstance(work, _Work), "parts are named where no type checker reads"
        self._work = work
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        part = self._work.part.load()
        work = getattr(part, self._work.name)
        method = functools.wraps(work)(self._make(part, work))
        setattr(self._owner, self._name, method)
        return getattr(owner if instance is None else instance, self._name)


def _blocking(
    part: type[T], work: Callable[Concatenate[T, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate["Admin", P], R]:
    """The method of `Admin` that does this work."""

    def make(part: type[Part], work: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *args, **settings: run(work(part(self._link()), *args, **settings))

    return cast("Callable[Concatenate[Admin, P], R]", _Method(work, make))


def _iterating(
    part: type[T], search: Callable[Concatenate[T, P], AsyncIterator[R]]
) -> Callable[Concatenate["Admin", P], Iterator[R]]:
    """The same for work that finds one thing after the other."""

    def make(part: type[Part], search: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *args, **settings: _each(search(part(self._link()), *args, **settings))

    return cast("Callable[Concatenate[Admin, P], Iterator[R]]", _Method(search, make))


def _each(found: AsyncIterator[R]) -> Iterator[R]:
    async def following() -> R:
        return await anext(found)

    while True:
        try:
            yield run(following())
        except StopAsyncIteration:
            return


def _awaited(
    part: type[T], work: Callable[Concatenate[T, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate["AsyncAdmin", P], Coroutine[Any, Any, R]]:
    """The method of `AsyncAdmin` that does this work."""
    return cast("Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]]", _Method(work, _as_it_is))


def _searching(
    part: type[T], search: Callable[Concatenate[T, P], AsyncIterator[R]]
) -> Callable[Concatenate["AsyncAdmin", P], AsyncIterator[R]]:
    """The same for work that finds one thing after the other."""
    return cast("Callable[Concatenate[AsyncAdmin, P], AsyncIterator[R]]", _Method(search, _as_it_is))


def _as_it_is(part: type[Part], work: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args, **settings: work(part(self._link()), *args, **settings)


if TYPE_CHECKING:
    from rmqpy.admin.cluster import Cluster
    from rmqpy.admin.dead_letters import DeadLetters
    from rmqpy.admin.groups import Groups
    from rmqpy.admin.health import Health
    from rmqpy.admin.messages import Messages
    from rmqpy.admin.settings import ServerSettings
    from rmqpy.admin.topics import Topics
    from rmqpy.admin.traces import Traces
    from rmqpy.admin.traffic import Traffic
else:
    Cluster = _Part("cluster", "Cluster")
    DeadLetters = _Part("dead_letters", "DeadLetters")
    Groups = _Part("groups", "Groups")
    Health = _Part("health", "Health")
    Messages = _Part("messages", "Messages")
    ServerSettings = _Part("settings", "ServerSettings")
    Topics = _Part("topics", "Topics")
    Traces = _Part("traces", "Traces")
    Traffic = _Part("traffic", "Traffic")


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
    topic_status = _blocking(Traffic, Traffic.of)
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
    stack = _blocking(Groups, Groups.stack)
    reset_offsets = _blocking(Groups, Groups.reset)
    skip_backlog = _blocking(Groups, Groups.skip)
    clone_offsets = _blocking(Groups, Groups.clone)

    message = _blocking(Messages, Messages.get)
    messages_by_key = _blocking(Messages, Messages.by_key)
    messages_between = _iterating(Messages, Messages.between)
    tail = _iterating(Messages, Messages.tail)
    resend_message = _blocking(Messages, Messages.resend)
    trace = _blocking(Traces, Traces.of)

    dead_letters = _blocking(DeadLetters, DeadLetters.piles)
    dlq = _iterating(DeadLetters, DeadLetters.messages)
    resend = _blocking(DeadLetters, DeadLetters.resend)
    purge_dead_letters = _blocking(DeadLetters, DeadLetters.purge)

    brokers = _blocking(Cluster, Cluster.brokers)
    clients = _blocking(Cluster, Cluster.clients)
    health = _blocking(Health, Health.cluster)
    topic_health = _blocking(Health, Health.topic)
    broker_health = _blocking(Health, Health.broker)

    delay_level = _blocking(ServerSettings, ServerSettings.delay_level)
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
    topic_status = _awaited(Traffic, Traffic.of)
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
    stack = _awaited(Groups, Groups.stack)
    reset_offsets = _awaited(Groups, Groups.reset)
    skip_backlog = _awaited(Groups, Groups.skip)
    clone_offsets = _awaited(Groups, Groups.clone)

    message = _awaited(Messages, Messages.get)
    messages_by_key = _awaited(Messages, Messages.by_key)
    messages_between = _searching(Messages, Messages.between)
    tail = _searching(Messages, Messages.tail)
    resend_message = _awaited(Messages, Messages.resend)
    trace = _awaited(Traces, Traces.of)

    dead_letters = _awaited(DeadLetters, DeadLetters.piles)
    dlq = _searching(DeadLetters, DeadLetters.messages)
    resend = _awaited(DeadLetters, DeadLetters.resend)
    purge_dead_letters = _awaited(DeadLetters, DeadLetters.purge)

    brokers = _awaited(Cluster, Cluster.brokers)
    clients = _awaited(Cluster, Cluster.clients)
    health = _awaited(Health, Health.cluster)
    topic_health = _awaited(Health, Health.topic)
    broker_health = _awaited(Health, Health.broker)

    delay_level = _awaited(ServerSettings, ServerSettings.delay_level)
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
