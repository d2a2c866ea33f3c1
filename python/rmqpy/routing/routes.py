"""What a name server knows: which brokers live, and which topics have queues there.

Owns three tables: groups of brokers by name, the queues of every topic by broker name, and one sign of life per
broker, keyed by cluster and address as Java does, because brokers of two clusters may share an address behind
different networks. Name servers do not know each other; every table here is rebuilt by what brokers say.

Invariants: a group has at least one address; a topic has at least one broker; a broker whose queues are listed is
in its group. A refused registration leaves no trace.

Threads: the event loop's only; every method returns without waiting.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

from rmqpy.clock import Clock
from rmqpy.protocol.requests.routes import BrokerData, ClusterInfo, QueueData, TopicRoute
from rmqpy.protocol.topics import DataVersion, Permission, TopicConfig, TopicTable
from rmqpy.routing.configuration import Configuration
from rmqpy.routing.views import MASTER_ID, with_acting_master

log = logging.getLogger(__name__)

T = TypeVar("T")

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

    def drop(self, address: str) -> None:
        """Forget an address, whatever its id."""
        self.addresses = {known: where for known, where in self.addresses.items() if where != address}

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


class Leaver(NamedTuple):
    """A broker that is gone."""

    who: Address
    name: str


class SmallestChanged(NamedTuple):
    """The smallest id of a group is another, as one left or one came."""

    group: str
    #: Of who is there now, by id.
    addresses: dict[int, str]
    #: The address of who left; `None` where somebody came.
    gone: str | None = None
    #: Where somebody came: the address its replicas are told.
    replica_address: str | None = None


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
        #: Told of every such change, once the tables are in order again.
        self.on_smallest: Callable[[SmallestChanged], None] = lambda change: None

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
        smallest = min(group.addresses, default=MASTER_ID)
        self._join(group, newcomer)
        if newcomer.broker_id == MASTER_ID or self._is_prime_slave(group, newcomer):
            self._take_topics(group, newcomer, table, is_first=holder is None)
        self._lives[who] = Life(newcomer, table.data_version, fingerprint, self._clock.elapsed())
        if newcomer.broker_id < smallest:
            self.on_smallest(
                SmallestChanged(group.name, group.addresses, replica_address=newcomer.replica_address)
            )
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

    def unregister(self, leavers: Iterable[Leaver]) -> None:
        """Brokers are gone; so are the topics that were nowhere else. However many they are, it is one pass."""
        removed: set[str] = set()
        #: Clients may read from a slave that acts for its master, and nobody writes to it.
        read_only: set[str] = set()
        #: Groups whose smallest id has gone, and its address.
        outlived: dict[str, str] = {}
        for leaver in leavers:
            self._lives.pop(leaver.who, None)
            group = self._groups.get(leaver.name)
            if group is None or leaver.who.address not in group.addresses.values():
                continue
            log.info("broker %s at %s is gone", leaver.name, leaver.who.address)
            smallest = min(group.addresses)
            group.drop(leaver.who.address)
            self._doubt(leaver.name)
            if not group.addresses:
                del self._groups[leaver.name]
                removed.add(leaver.name)
                continue
            if group.may_act_for_master and MASTER_ID not in group.addresses:
                read_only.add(leaver.name)
            if smallest not in group.addresses and group.may_act_for_master:
                outlived[leaver.name] = leaver.who.address
        self._sweep(removed, read_only - removed)
        for name, address in outlived.items():
            if name not in removed:
                self.on_smallest(SmallestChanged(name, self._groups[name].addresses, gone=address))

    def heard_on(self, connection: int) -> list[Leaver]:
        """Every broker that was last heard on this connection."""
        return self._living(lambda life: life.newcomer.connection == connection)

    def expire(self) -> list[int]:
        """Remove brokers that were silent for too long; the connections they used are the caller's to close."""
        now = self._clock.elapsed()
        silent = self._living(lambda life: life.is_over(now))
        connections = [self._lives[leaver.who].newcomer.connection for leaver in silent]
        self.unregister(silent)
        return connections

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
            groups = [with_acting_master(group, queues[group.broker_name]) for group in groups]
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
        group.drop(newcomer.address)
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

    def _living(self, predicate: Callable[[Life], bool]) -> list[Leaver]:
        return [Leaver(who, life.newcomer.name) for who, life in self._lives.items() if predicate(life)]

    def _sweep(self, removed: set[str], read_only: set[str]) -> None:
        """Take the queues of removed brokers out of every topic, and the write bit from those of others."""
        if not removed and not read_only:
            return
        self._topics = _without(self._topics, removed)
        self._mappings = _without(self._mappings, removed)
        for queues in self._topics.values():
            for broker in read_only & queues.keys():
                queues[broker] = replace(queues[broker], perm=queues[broker].perm & ~Permission.WRITE)

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


def _without(table: dict[str, dict[str, T]], brokers: set[str]) -> dict[str, dict[str, T]]:
    """What a table says of other brokers; topics that were at these brokers only are left out."""
    left: dict[str, dict[str, T]] = {}
    for topic, by_broker in table.items():
        if not brokers.isdisjoint(by_broker):
            by_broker = {name: of for name, of in by_broker.items() if name not in brokers}
        if by_broker:
            left[topic] = by_broker
    return left


def _queue(broker: str, config: TopicConfig, read_only: bool) -> QueueData:
    return QueueData(
        broker_name=broker,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm & ~Permission.WRITE if read_only else config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )
