"""`Admin` and `AsyncAdmin`: all operations on a cluster, for threads and for event loops.

Owns the native client and the table of operations. The parts (`Topics`, `Groups`, …) are coroutines, each imported on
first use to keep commands fast. `Admin` runs a coroutine to its end in the caller's thread, `AsyncAdmin` in the event
loop. Threads: an `Admin` any, an `AsyncAdmin` the one of its loop.
"""

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from importlib import import_module
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, overload

from rmqpy._native import Client
from rmqpy.admin.connection import AdminConnection, Part
from rmqpy.config.arguments import check_call
from rmqpy.config.client import Address, ClientConfig
from rmqpy.errors import ClosedError
from rmqpy.findings import Finding, headless
from rmqpy.remoting.client import BlockingCaller, LoopCaller, run

T = TypeVar("T", bound=Part)
P = ParamSpec("P")
R = TypeVar("R")


class _Operation(Generic[P, R]):
    """A coroutine of a part as a method: blocking on `Admin`, awaitable on `AsyncAdmin`."""

    def __init__(self, work: Callable[Concatenate[T, P], Coroutine[Any, Any, R]]) -> None:
        self._work = work

    @overload
    def __get__(self, admin: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, admin: "Admin", owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, admin: "AsyncAdmin", owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, admin: object, owner: type) -> Any:
        return _method(self._work, run, admin)


class _Search(Generic[P, R]):
    """The same for an asynchronous iterator, a plain iterator on `Admin`."""

    def __init__(self, work: Callable[Concatenate[T, P], AsyncIterator[R]]) -> None:
        self._work = work

    @overload
    def __get__(self, admin: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, admin: "Admin", owner: type) -> Callable[P, Iterator[R]]: ...
    @overload
    def __get__(self, admin: "AsyncAdmin", owner: type) -> Callable[P, AsyncIterator[R]]: ...
    def __get__(self, admin: object, owner: type) -> Any:
        return _method(self._work, iterate, admin)


def _method(work: object, block: Callable[[Any], Any], admin: object) -> Callable[..., Any]:
    """The operation, bound to an admin if there is one; `block` converts its result for `Admin`."""
    assert isinstance(work, _Work), "parts are placeholders where no type checker reads"
    part = work.part.load()
    function = getattr(part, work.name)

    @functools.wraps(function)
    def method(self: _Operations, *args: Any, **settings: Any) -> Any:
        check_call(function, args, settings)
        result = function(part(self._cluster()), *args, **settings)
        return block(result) if isinstance(self, Admin) else result

    return method if admin is None else MethodType(method, admin)


def iterate(found: AsyncIterator[R]) -> Iterator[R]:
    """Items of an asynchronous iterator, run in the caller's thread."""

    async def following() -> R:
        return await anext(found)

    while True:
        try:
            yield run(following())
        except StopAsyncIteration:
            return


class _Part:
    """Placeholder for a part that is imported on first use."""

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


if TYPE_CHECKING:
    from rmqpy.admin.access import Access
    from rmqpy.admin.backlogs import Backlogs
    from rmqpy.admin.backups import Backups
    from rmqpy.admin.cluster import Cluster
    from rmqpy.admin.dead_letters import DeadLetters
    from rmqpy.admin.elections import Elections
    from rmqpy.admin.failover import Failover
    from rmqpy.admin.group_health import GroupHealth
    from rmqpy.admin.groups import Groups
    from rmqpy.admin.half_messages import HalfMessages
    from rmqpy.admin.health import Health
    from rmqpy.admin.history import Histories
    from rmqpy.admin.in_flight import InFlightTable
    from rmqpy.admin.messages import Messages
    from rmqpy.admin.online import Online
    from rmqpy.admin.promotion import Promotion
    from rmqpy.admin.queues import Queues
    from rmqpy.admin.replicas import Replicas
    from rmqpy.admin.schedules import Schedules
    from rmqpy.admin.search import Search
    from rmqpy.admin.settings import ServerSettings
    from rmqpy.admin.static_topics import StaticTopics
    from rmqpy.admin.timers import Timers
    from rmqpy.admin.topics import Topics
    from rmqpy.admin.traces import Traces
    from rmqpy.admin.traffic import Traffic
    from rmqpy.admin.transfer import Transfer
    from rmqpy.admin.upkeep import Upkeep
else:
    Access = _Part("access", "Access")
    Backlogs = _Part("backlogs", "Backlogs")
    Backups = _Part("backups", "Backups")
    Cluster = _Part("cluster", "Cluster")
    DeadLetters = _Part("dead_letters", "DeadLetters")
    Elections = _Part("elections", "Elections")
    Failover = _Part("failover", "Failover")
    GroupHealth = _Part("group_health", "GroupHealth")
    Groups = _Part("groups", "Groups")
    HalfMessages = _Part("half_messages", "HalfMessages")
    Health = _Part("health", "Health")
    Histories = _Part("history", "Histories")
    InFlightTable = _Part("in_flight", "InFlightTable")
    Messages = _Part("messages", "Messages")
    Online = _Part("online", "Online")
    Queues = _Part("queues", "Queues")
    Promotion = _Part("promotion", "Promotion")
    Replicas = _Part("replicas", "Replicas")
    Schedules = _Part("schedules", "Schedules")
    Search = _Part("search", "Search")
    ServerSettings = _Part("settings", "ServerSettings")
    StaticTopics = _Part("static_topics", "StaticTopics")
    Timers = _Part("timers", "Timers")
    Topics = _Part("topics", "Topics")
    Traces = _Part("traces", "Traces")
    Traffic = _Part("traffic", "Traffic")
    Transfer = _Part("transfer", "Transfer")
    Upkeep = _Part("upkeep", "Upkeep")


class _Operations:
    """Table of operations, over a native client and the connection to a cluster."""

    def __init__(self, namesrv: Address | ClientConfig | None = None) -> None:
        #: The connection to the cluster.
        self.client_config = ClientConfig.of(namesrv)
        self._client = Client(
            connect_timeout_ms=round(self.client_config.connect_timeout * 1_000),
            binary=self.client_config.header == "binary",
            namespace=self.client_config.namespace,
            credentials=self.client_config.signing,
            tls=self.client_config.tls.native() if self.client_config.tls else None,
        )
        self._opened: AdminConnection | None = None

    def _cluster(self) -> AdminConnection:
        if self._opened is None:
            raise ClosedError("the admin is closed")
        return self._opened

    def left_out(self) -> Finding | None:
        """Brokers skipped so far because they have no master."""
        names = self._opened.left_out if self._opened is not None else ()
        return headless(names) if names else None

    topics = _Operation(Topics.names)
    topic_types = _Operation(Topics.types)
    topic_summaries = _Operation(Topics.summaries)
    topic = _Operation(Topics.describe)
    topic_settings = _Operation(Topics.settings)
    route = _Operation(Topics.route)
    topic_status = _Operation(Traffic.of)
    create_topic = _Operation(Topics.create)
    update_topic = _Operation(Topics.alter)
    delete_topic = _Operation(Topics.delete)
    static_topic = _Operation(StaticTopics.describe)
    create_static_topic = _Operation(StaticTopics.create)
    remap_static_topic = _Operation(StaticTopics.remap)
    topic_groups = _Operation(Traffic.groups)
    earliest_store_time = _Operation(Queues.earliest_store_time)
    queue_offsets = _Operation(Queues.offsets)
    offset_at = _Operation(Queues.offset_at)
    queue_entries = _Operation(Queues.entries)

    groups = _Operation(Groups.names)
    group_summaries = _Operation(Backlogs.groups)
    group_ages = _Operation(Backlogs.ages)
    group = _Operation(Groups.describe)
    create_group = _Operation(Groups.create)
    update_group = _Operation(Groups.alter)
    delete_group = _Operation(Groups.delete)
    progress = _Operation(Groups.progress)
    known_progress = _Operation(Groups.known_progress)
    members = _Operation(Groups.members)
    stack = _Operation(Groups.stack)
    group_topics = _Operation(Traffic.topics)
    running_info = _Operation(Online.running_info)
    positions = _Operation(Online.positions)
    consume_directly = _Operation(Online.consume_directly)
    reset_offsets = _Operation(Groups.reset)
    skip_backlog = _Operation(Groups.skip)
    clone_offsets = _Operation(Groups.clone)
    group_readable = _Operation(Groups.readable)
    in_flight = _Operation(InFlightTable.of)
    show_now = _Operation(InFlightTable.show_now)

    message = _Operation(Messages.get)
    messages_by_key = _Operation(Messages.by_key)
    messages_by_tag = _Operation(Messages.by_tag)
    messages_between = _Search(Messages.between)
    messages_of_queue = _Search(Messages.of_queue)
    tail = _Search(Messages.tail)
    search = _Operation(Search.run)
    resend_message = _Operation(Messages.resend)
    recheck_transaction = _Operation(Messages.recheck)
    pending_timers = _Operation(Timers.pending)
    schedules = _Operation(Schedules.all)
    schedule = _Operation(Schedules.get)
    create_schedule = _Operation(Schedules.create)
    pause_schedule = _Operation(Schedules.pause)
    resume_schedule = _Operation(Schedules.resume)
    delete_schedule = _Operation(Schedules.delete)
    half_messages = _Operation(HalfMessages.open)
    trace = _Operation(Traces.of)

    dead_letters = _Operation(DeadLetters.counts)
    dlq = _Search(DeadLetters.messages)
    dead_letter = _Operation(DeadLetters.get)
    resend = _Operation(DeadLetters.resend)
    resent = _Operation(DeadLetters.resent)
    is_newest_dead_letter_resent = _Operation(DeadLetters.is_newest_resent)
    purge_dead_letters = _Operation(DeadLetters.purge)

    brokers = _Operation(Cluster.brokers)
    clients = _Operation(Cluster.clients)
    replicas = _Operation(Replicas.states)
    backups = _Operation(Backups.known)
    promote = _Operation(Promotion.promote)
    elections = _Operation(Elections.states)
    failover = _Operation(Failover.failover)
    drain = _Operation(Failover.drain)
    health = _Operation(Health.cluster)
    topic_health = _Operation(Health.topic)
    group_health = _Operation(GroupHealth.of)
    known_group_health = _Operation(GroupHealth.of_known)
    broker_health = _Operation(Health.broker)

    history = _Operation(Histories.history)
    broker_runtime = _Operation(Upkeep.runtime)
    broker_statistic = _Operation(Upkeep.statistic)
    broker_backlogs = _Operation(Backlogs.of_broker)
    delete_expired_log = _Operation(Upkeep.delete_expired_log)
    clean_queues = _Operation(Upkeep.clean_queues)
    clean_topics = _Operation(Upkeep.clean_topics)
    set_broker_writable = _Operation(Upkeep.set_writable)
    cluster_topics = _Operation(Upkeep.cluster_topics)
    values = _Operation(Upkeep.values)
    set_value = _Operation(Upkeep.set_value)

    users = _Operation(Access.users)
    create_user = _Operation(Access.create_user)
    update_user = _Operation(Access.update_user)
    delete_user = _Operation(Access.delete_user)
    rules = _Operation(Access.rules)
    set_rule = _Operation(Access.set_rule)
    delete_rule = _Operation(Access.delete_rule)
    check_access = _Operation(Access.check)
    authentication = _Operation(Access.authentication)
    migrate_accounts = _Operation(Access.migrate)

    export_cluster = _Operation(Transfer.export)
    plan_import = _Operation(Transfer.plan)
    apply_import = _Operation(Transfer.apply)

    delay_level = _Operation(ServerSettings.delay_level)
    broker_config = _Operation(ServerSettings.of_broker)
    update_broker_config = _Operation(ServerSettings.change_broker)
    namesrv_config = _Operation(ServerSettings.of_name_servers)
    update_namesrv_config = _Operation(ServerSettings.change_name_servers)


class Admin(_Operations):
    """Administers a cluster: topics, groups, messages, brokers, settings.

    ::

        with rmqpy.Admin("127.0.0.1:9876") as admin:
            admin.create_topic("orders", write_queues=16, read_queues=16)
            for row in admin.progress("billing"):
                print(row.topic, row.queue_id, row.lag)

    Raises `NameServerUnreachable`, `ConnectError` and `RequestTimeout` for unreachable servers, `TopicNotFound`,
    `GroupNotFound`, `AuthError`, and `BrokerError` with the broker's text for other refusals. Any thread.
    """

    def __init__(self, namesrv: Address | ClientConfig | None = None) -> None:
        super().__init__(namesrv)
        self._opened = AdminConnection(BlockingCaller(self._client), self.client_config)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._opened = None
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncAdmin(_Operations):
    """`Admin` with coroutines, for the event loop that enters it.

    ::

        async with rmqpy.AsyncAdmin("127.0.0.1:9876") as admin:
            print(await admin.topics())
    """

    async def close(self) -> None:
        """Close the connections; operations in progress raise `ClosedError`. Idempotent."""
        if self._opened is not None:
            opened, self._opened = self._opened, None
            assert isinstance(opened.caller, LoopCaller), "made by __aenter__"
            opened.caller.close()
        self._client.close()

    async def __aenter__(self) -> Self:
        opened = AdminConnection(LoopCaller(self._client), self.client_config)
        self._opened = opened
        try:
            await opened.name_servers.ready(opened.caller)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
