"""What a name server knows: which brokers live, and which topics have queues there.

Owns three tables: groups of brokers by name, the queues of every topic by broker name, and one sign of life per
broker, keyed by cluster and address as Java does, because brokers of two clusters may share an address behind
different networks. Name servers do not know each other; every table here is rebuilt by what brokers say.

Invariants: a group has at least one address; a topic has at least one broker; a broker whose queues are listed is
in its group. A refused registration leaves no trace.

Threads: the event loop's only; every method returns without waiting.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from rmqpy.clock import Clock
from rmqpy.protocol.requests.routes import BrokerData, ClusterInfo, QueueData, TopicRoute
from rmqpy.protocol.topics import DataVersion, Permission, TopicConfig, TopicTable
from rmqpy.routing.configuration import Configuration

log = logging.getLogger(__name__)

MASTER_ID: Final = 0
#: How long a broker is believed in that did not say how long.
HEARTBEAT_TIMEOUT_MS: Final = 120_000
#: Topics of brokers that synchronise the members of their group: they need the true ids.
_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"


class Address(NamedTuple):
    """How a sign of life finds its broker."""

    cluster: str
    address: str


@dataclass(slots=True)
class Group:
    """Brokers of one name: a master and its slaves."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    may_act_for_master: bool = False
    zone: str | None = None

    def data(self) -> BrokerData:
        """A copy for an answer."""
        return BrokerData(
            broker_name=self.name,
            cluster=self.cluster,
            broker_addrs=dict(sorted(self.addresses.items())),
            enable_acting_master=self.may_act_for_master,
            zone_name=self.zone,
        )


class Newcomer(NamedTuple):
    """What a broker says about itself when it registers."""

    cluster: str
    name: str
    broker_id: int
    address: str
    replica_address: str
    connection: int
    #: `None`: too old to act for its master.
    may_act_for_master: bool | None = None
    timeout_ms: int | None = None
    zone: str | None = None


@dataclass(slots=True)
class Life:
    """The last thing heard of one broker."""

    newcomer: Newcomer
    data_version: DataVersion
    #: Of the table it sent last; `None` once our tables may differ from that.
    fingerprint: bytes | None
    heard: float

    def is_over(self, now: float) -> bool:
        """Whether the broker was silent for too long."""
        given = self.newcomer.timeout_ms or 0
        return now > self.heard + (given if given > 0 else HEARTBEAT_TIMEOUT_MS) / 1000


class Welcome(NamedTuple):
    """The answer to a registration: to a slave, where its master is."""

    master_address: str | None = None
    replica_address: str | None = None


class SingleTopicTooEarly(Exception):
    """One topic came before the broker's whole table: taken as the table, it would hide all others."""


class Routes:
    """The tables."""

    def __init__(self, clock: Clock, configuration: Configuration) -> None:
        self._clock = clock
        self._configuration = configuration
        self._groups: dict[str, Group] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, object]] = {}
        self._lives: dict[Address, Life] = {}

    # ---- brokers come and go ----

    def register(self, newcomer: Newcomer, table: TopicTable, fingerprint: bytes | None = None) -> Welcome:
        """Take a broker and its topics in. Raises `SingleTopicTooEarly`."""
        who = Address(newcomer.cluster, newcomer.address)
        group = self._groups.get(newcomer.name)
        holder = group.addresses.get(newcomer.broker_id) if group else None
        if holder is None and len(table.topic_config_table) == 1:
            raise SingleTopicTooEarly(newcomer.name)
        if holder not in (None, newcomer.address) and self._is_newer(
            Address(newcomer.cluster, holder), table.data_version
        ):
            # The holder has seen a later election than the newcomer, who will find out by itself.
            log.warning("broker %s at %s is outdated by %s", newcomer.name, newcomer.address, holder)
            self._lives.pop(who, None)
            return Welcome()
        if group is None:
            group = self._groups[newcomer.name] = Group(newcomer.cluster, newcomer.name)
            log.info("broker %s registered from %s", newcomer.name, newcomer.address)
        self._join(group, newcomer)
        if newcomer.broker_id == MASTER_ID or self._is_prime_slave(group, newcomer):
            self._take_topics(group, newcomer, table, is_first=holder is None)
        self._lives[who] = Life(newcomer, table.data_version, fingerprint, self._clock.elapsed())
        return self._welcome(group, newcomer)

    def renew(self, newcomer: Newcomer, fingerprint: bytes) -> Welcome | None:
        """A registration that equals the last one is a sign of life: `None` when it is not, and must be read.

        A broker repeats its table every 30 s, and reading 20,000 topics would hold up every other caller.
        """
        life = self._lives.get(Address(newcomer.cluster, newcomer.address))
        if life is None or life.fingerprint != fingerprint:
            return None
        if life.newcomer._replace(connection=newcomer.connection) != newcomer:
            return None
        life.newcomer = newcomer
        life.heard = self._clock.elapsed()
        return self._welcome(self._groups[newcomer.name], newcomer)

    def unregister(self, cluster: str, name: str, address: str) -> None:
        """A broker is gone; so are the topics that were nowhere else."""
        self._lives.pop(Address(cluster, address), None)
        group = self._groups.get(name)
        if group is None or address not in group.addresses.values():
            return
        group.addresses = {known: where for known, where in group.addresses.items() if where != address}
        self._doubt(name)
        if not group.addresses:
            del self._groups[name]
            self._forget_queues(name)
        elif group.may_act_for_master and MASTER_ID not in group.addresses:
            # Clients may read from a slave that acts for its master, and nobody writes to it.
            self._set_permission(name, lambda perm: perm & ~Permission.WRITE)
        log.info("broker %s at %s is gone", name, address)

    def connection_closed(self, connection: int) -> None:
        """Every broker that was last heard on this connection is gone: at once, not after its timeout."""
        self._remove_where(lambda life: life.newcomer.connection == connection)

    def expire(self) -> list[int]:
        """Remove brokers that were silent for too long; the connections they used are the caller's to close."""
        now = self._clock.elapsed()
        return self._remove_where(lambda life: life.is_over(now))

    def heartbeat(self, cluster: str, address: str) -> None:
        """A sign of life of a broker that is known; of another one it means nothing."""
        life = self._lives.get(Address(cluster, address))
        if life is not None:
            life.heard = self._clock.elapsed()

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the table a broker registered last."""
        life = self._lives.get(Address(cluster, address))
        return life.data_version if life else None

    # ---- topics ----

    def add_queues(self, topic: str, queues: list[QueueData]) -> None:
        """Merge queues of one topic; what follows one at an unknown broker is dropped, as Java does."""
        for queue in queues:
            if queue.broker_name not in self._groups:
                log.warning("topic %s: broker %s is not registered", topic, queue.broker_name)
                return
            self._topics.setdefault(topic, {})[queue.broker_name] = queue

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, in one cluster or everywhere."""
        for group in self._groups.values():
            if cluster in (None, group.cluster):
                self._drop_queue(topic, group.name)
                self._doubt(group.name)

    def wipe_write_permission(self, broker: str) -> int:
        """Take the write bit from every topic of a broker; how many it has. The next changed table restores it."""
        return self._set_permission(broker, lambda perm: perm & ~Permission.WRITE)

    def add_write_permission(self, broker: str) -> int:
        """Make every topic of a broker readable and writable; how many it has.

        Topics that were read-only before become writable too: the original does the same, and tools expect it.
        """
        return self._set_permission(broker, lambda perm: Permission.READ_WRITE)

    # ---- questions ----

    def route(self, topic: str, order: str | None = None) -> TopicRoute | None:
        """The queues of a topic, the brokers they are at, and their order; `None` when there are none."""
        queues = self._topics.get(topic, {})
        groups = [self._groups[name].data() for name in queues]
        if not groups:
            return None
        if self._configuration.current.acting_master and not topic.startswith(_MEMBER_TOPIC_PREFIX):
            groups = [_with_acting_master(group, queues[group.broker_name]) for group in groups]
        return TopicRoute(
            queue_datas=list(queues.values()),
            broker_datas=groups,
            order_topic_conf=order,
            topic_queue_mapping_by_broker=dict(self._mappings[topic]) if topic in self._mappings else None,
        )

    def cluster_info(self) -> ClusterInfo:
        """All groups, and their names by cluster."""
        clusters: dict[str, list[str]] = {}
        for group in self._groups.values():
            clusters.setdefault(group.cluster, []).append(group.name)
        return ClusterInfo(
            broker_addr_table={name: group.data() for name, group in self._groups.items()},
            cluster_addr_table=clusters,
        )

    def members(self, cluster: str, name: str) -> dict[int, str]:
        """The addresses of one group by id."""
        group = self._groups.get(name)
        return dict(sorted(group.addresses.items())) if group and group.cluster == cluster else {}

    def topics(self) -> list[str]:
        """Every topic with a queue somewhere."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics with a queue at a broker of the cluster."""
        names = {group.name for group in self._groups.values() if group.cluster == cluster}
        return [topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)]

    def topics_where(self, predicate: Callable[[int], bool]) -> list[str]:
        """Topics whose `topicSysFlag`, the same at every broker, fulfils the predicate."""
        return [
            topic
            for topic, queues in self._topics.items()
            if predicate(next(iter(queues.values())).topic_sys_flag)
        ]

    # ---- parts of the above ----

    def _is_newer(self, holder: Address, version: DataVersion) -> bool:
        life = self._lives.get(holder)
        return life is not None and life.data_version.state_version > version.state_version

    def _join(self, group: Group, newcomer: Newcomer) -> None:
        group.may_act_for_master = bool(newcomer.may_act_for_master)
        group.zone = newcomer.zone
        if group.addresses.get(newcomer.broker_id) == newcomer.address:
            return
        self._doubt(group.name)
        # An address has one id: a slave that comes back as master leaves its old place.
        group.addresses = {
            known: address for known, address in group.addresses.items() if address != newcomer.address
        }
        group.addresses[newcomer.broker_id] = newcomer.address

    @staticmethod
    def _is_prime_slave(group: Group, newcomer: Newcomer) -> bool:
        return newcomer.may_act_for_master is not None and newcomer.broker_id == min(group.addresses)

    def _take_topics(self, group: Group, newcomer: Newcomer, table: TopicTable, *, is_first: bool) -> None:
        stored = self.data_version(newcomer.cluster, newcomer.address)
        is_changed = is_first or stored != table.data_version
        is_slave = newcomer.broker_id != MASTER_ID
        mappings = table.topic_queue_mapping_info_map or {}
        if self._configuration.current.deletes_missing_topics and not mappings:
            for topic in [topic for topic, queues in self._topics.items() if group.name in queues]:
                if topic not in table.topic_config_table:
                    self._drop_queue(topic, group.name)
        for topic, config in table.topic_config_table.items():
            if is_changed or group.name not in self._topics.get(topic, {}):
                read_only = is_slave and group.may_act_for_master
                self._topics.setdefault(topic, {})[group.name] = _queue(group.name, config, read_only)
        if is_changed:
            for topic, mapping in mappings.items():
                self._mappings.setdefault(topic, {})[group.name] = mapping

    def _welcome(self, group: Group, newcomer: Newcomer) -> Welcome:
        master = group.addresses.get(MASTER_ID)
        if newcomer.broker_id == MASTER_ID or master is None:
            return Welcome()
        life = self._lives.get(Address(newcomer.cluster, master))
        return Welcome(master, life.newcomer.replica_address) if life else Welcome()

    def _remove_where(self, predicate: Callable[[Life], bool]) -> list[int]:
        gone = [(who, life) for who, life in self._lives.items() if predicate(life)]
        for who, life in gone:
            self.unregister(who.cluster, life.newcomer.name, who.address)
        return [life.newcomer.connection for _, life in gone]

    def _forget_queues(self, broker: str) -> None:
        for topic in [topic for topic, queues in self._topics.items() if broker in queues]:
            self._drop_queue(topic, broker)

    def _doubt(self, broker: str) -> None:
        """Read the next registration of these brokers even if it equals the last one."""
        for life in self._lives.values():
            if life.newcomer.name == broker:
                life.fingerprint = None

    def _drop_queue(self, topic: str, broker: str) -> None:
        for table in (self._topics, self._mappings):
            by_broker = table.get(topic, {})
            by_broker.pop(broker, None)
            if not by_broker:
                table.pop(topic, None)

    def _set_permission(self, broker: str, change: Callable[[int], int]) -> int:
        topics = [queues for queues in self._topics.values() if broker in queues]
        for queues in topics:
            queues[broker] = replace(queues[broker], perm=int(change(queues[broker].perm)))
        return len(topics)


def _queue(broker: str, config: TopicConfig, read_only: bool) -> QueueData:
    return QueueData(
        broker_name=broker,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm & ~Permission.WRITE if read_only else config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )


def _with_acting_master(group: BrokerData, queue: QueueData) -> BrokerData:
    """The group with its smallest slave shown as master, where it has lost its own and may not be written to."""
    is_whole = MASTER_ID in group.broker_addrs
    if is_whole or not group.enable_acting_master or queue.perm & Permission.WRITE:
        return group
    smallest = min(group.broker_addrs)
    shown = {MASTER_ID if known == smallest else known: where for known, where in group.broker_addrs.items()}
    return replace(group, broker_addrs=dict(sorted(shown.items())))


def in_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """The route as seen from one zone. Groups without a master stay: slaves elsewhere may serve reads."""
    brokers = [
        group
        for group in route.broker_datas
        if MASTER_ID not in group.broker_addrs or group.zone_name == zone
    ]
    names = {group.broker_name for group in brokers}
    return replace(
        route,
        broker_datas=brokers,
        queue_datas=[queue for queue in route.queue_datas if queue.broker_name in names],
    )
