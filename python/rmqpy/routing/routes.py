"""Routes: live brokers and their topics.

Owns the groups of brokers by name, and one heartbeat entry per broker. Name servers do not know each other; brokers
rebuild every table here.

Invariants: a group has at least one address; a broker with listed queues is in its group. A refused registration
leaves no trace.

Threads: only the event loop's; no method waits.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from rmqpy.clock import Clock
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.findings import duplicate
from rmqpy.protocol import names
from rmqpy.protocol.requests.routes import MASTER_ID, ClusterInfo, QueueData, TopicRoute
from rmqpy.protocol.topics import DataVersion, TopicTable
from rmqpy.remoting.configuration import Configuration
from rmqpy.routing.brokers import (
    BROKERS_MAX,
    BrokerGroup,
    BrokerInfo,
    BrokerKey,
    BrokerLiveInfo,
    MasterAddresses,
    MinBrokerIdChange,
    SingleTopicTooEarly,
)
from rmqpy.routing.gone_brokers import GoneBrokers
from rmqpy.routing.live_brokers import LiveBrokers
from rmqpy.routing.route_filter import with_acting_master
from rmqpy.routing.topic_queues import BrokerTopics, RoutesFullError, TopicQueues

log = logging.getLogger(__name__)


class Routes:
    """The tables."""

    def __init__(
        self,
        clock: Clock,
        configuration: Configuration[NameServerConfig],
        on_min_broker_id_change: Callable[[MinBrokerIdChange], None] = lambda change: None,
    ) -> None:
        """`on_min_broker_id_change` is called at every such change, once the tables are consistent."""
        self._clock = clock
        self._configuration = configuration
        self._groups: dict[str, BrokerGroup] = {}
        self.queues = TopicQueues()
        self._live = LiveBrokers()
        self._gone = GoneBrokers(clock)
        #: Whether the full table was logged, with nothing removed since.
        self._is_full = False
        self._on_min_broker_id_change = on_min_broker_id_change

    # ---- joining and leaving ----

    def register(
        self,
        broker: BrokerInfo,
        table: TopicTable,
        fingerprint: bytes | None = None,
        topics: BrokerTopics | None = None,
    ) -> MasterAddresses:
        """Add a broker and its topics. `topics`: those of the table, if already parsed.

        Raises `SingleTopicTooEarly`, and `RoutesFullError`: a known broker then stays unchanged.
        """
        key = broker.key
        group = self._groups.get(broker.name)
        holder = group.addresses.get(broker.broker_id) if group else None
        if holder is None and len(table.topic_config_table) == 1:
            raise SingleTopicTooEarly(broker.name)
        if holder not in (None, broker.address) and self._is_newer(
            key._replace(address=holder), table.data_version
        ):
            # The holder knows a later election than this broker, which will find out by itself.
            log.warning("broker %s at %s is outdated by %s", broker.name, broker.address, holder)
            self._live.drop(key)
            return MasterAddresses()
        topics = topics or BrokerTopics.read(broker.name, table)
        live = self._live.get(key)
        try:
            self._check_room(topics, newcomer=None if live else broker)
        except RoutesFullError:
            if live is not None:
                # Its earlier topics stay while it is alive.
                info = live.info._replace(connection=broker.connection)
                self._live.put(replace(live, info=info, last_seen=self._clock.elapsed()))
            raise
        self._leave_former_name(broker)
        if group is None:
            group = self._groups[broker.name] = BrokerGroup(broker.cluster, broker.name)
            log.info("broker %s registered from %s", broker.name, broker.address)
        self._tell_of_duplicate(group, broker)
        smallest = min(group.addresses, default=MASTER_ID)
        self._join(group, broker)
        self._gone.back(broker)
        if broker.broker_id == MASTER_ID or self._is_prime_slave(group, broker):
            self._take_topics(group, broker, table, topics, is_first=holder is None)
        self._live.put(BrokerLiveInfo(broker, table.data_version, fingerprint, self._clock.elapsed()))
        if broker.broker_id < smallest:
            self._on_min_broker_id_change(
                MinBrokerIdChange(group.name, group.addresses, replica_address=broker.replica_address)
            )
        return self._master_of(group, broker)

    def renew(self, broker: BrokerInfo, fingerprint: bytes) -> MasterAddresses | None:
        """Treat a registration equal to the last one as a heartbeat: `None` if it differs and must be parsed.

        A broker repeats its table every 30 s, and parsing 20,000 topics would delay all other requests.
        """
        live = self._live.get(broker.key)
        if live is None or live.fingerprint != fingerprint:
            return None
        if live.info._replace(connection=broker.connection) != broker:
            return None
        self._live.put(replace(live, info=broker, last_seen=self._clock.elapsed()))
        return self._master_of(self._groups[broker.name], broker)

    def unregister(self, brokers: Iterable[BrokerKey], stopped: Collection[BrokerKey] = ()) -> None:
        """Remove brokers, and topics that were only there. Many together cost little more than a few.

        `stopped`: those that asked for it.
        """
        removed: set[str] = set()
        #: Clients may read from a slave that acts for its master, but not write.
        read_only: set[str] = set()
        #: Groups whose smallest id has left, and its address.
        outlived: dict[str, str] = {}
        for key in brokers:
            self._is_full = False
            live = self._live.get(key)
            self._live.drop(key)
            name, address = key.name, key.address
            group = self._groups.get(name)
            if group is None or address not in group.addresses.values():
                continue
            log.info("broker %s at %s is gone", name, address)
            if live is not None and not self._is_held(live.info):
                self._gone.note(live.info, is_stopped=key in stopped)
            smallest = min(group.addresses)
            group.drop(address)
            self._invalidate(name)
            if not group.addresses:
                del self._groups[name]
                removed.add(name)
                continue
            if group.may_act_for_master and MASTER_ID not in group.addresses:
                read_only.add(name)
            if smallest not in group.addresses and group.may_act_for_master:
                outlived[name] = address
        self.queues.sweep(removed, read_only - removed)
        for name, address in outlived.items():
            if name not in removed:
                self._on_min_broker_id_change(
                    MinBrokerIdChange(name, self._groups[name].addresses, gone=address)
                )

    def brokers_of(self, connection: int) -> list[BrokerKey]:
        """Every broker whose last heartbeat came on this connection."""
        return self._live.of_connection(connection)

    def expire(self) -> list[int]:
        """Remove timed-out brokers; the caller closes their connections."""
        now = self._clock.elapsed()
        silent = [live.info for live in self._live if live.is_expired(now)]
        self.unregister([info.key for info in silent])
        return [info.connection for info in silent]

    def heartbeat(self, broker: BrokerKey) -> None:
        """A heartbeat of a known broker; ignored for an unknown one."""
        live = self._live.get(broker)
        if live is not None:
            live.last_seen = self._clock.elapsed()

    def data_version(self, broker: BrokerKey) -> DataVersion | None:
        """The version of the table a broker registered last."""
        live = self._live.get(broker)
        return live.data_version if live else None

    # ---- topics ----

    def add_queues(self, topic: str, queues: list[QueueData]) -> None:
        """Merge queues of one topic; after one at an unknown broker the rest is dropped, as in Java.

        Raises `RoutesFullError`.
        """
        known: dict[str, QueueData] = {}
        for queue in queues:
            if queue.broker_name not in self._groups:
                log.warning("topic %s: broker %s is not registered", topic, queue.broker_name)
                break
            known[queue.broker_name] = queue
        if known:
            self._check_room(BrokerTopics({topic: known}, {}, {}))
            self.queues.put({topic: known})

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, in one cluster or everywhere."""
        for group in self._groups.values():
            if cluster in (None, group.cluster):
                self._is_full = False
                self.queues.drop(topic, group.name)
                self._invalidate(group.name)

    # ---- responses ----

    def route(self, topic: str, order: str | None = None) -> TopicRoute | None:
        """The queues of a topic, their brokers, and their order; `None` without queues."""
        queues = self.queues.of(topic)
        groups = [self._groups[name].data() for name in queues]
        if not groups:
            return None
        if self._configuration.current.acting_master and not topic.startswith(names.BROKER_MEMBER_PREFIX):
            groups = [with_acting_master(group, queues[group.broker_name]) for group in groups]
        return TopicRoute(
            queue_datas=list(queues.values()),
            broker_datas=groups,
            order_topic_conf=order,
            topic_queue_mapping_by_broker=self.queues.mapping(topic),
        )

    def cluster_info(self) -> ClusterInfo:
        """All groups, and their names by cluster."""
        clusters: dict[str, list[str]] = {}
        for group in self._groups.values():
            clusters.setdefault(group.cluster, []).append(group.name)
        return ClusterInfo(
            broker_addr_table={name: group.data() for name, group in self._groups.items()},
            cluster_addr_table=clusters,
            duplicate_broker_addrs=self._duplicates() or None,
            gone_brokers=self._gone.list() or None,
        )

    def members(self, cluster: str, name: str) -> dict[int, str]:
        """The addresses of one group by id."""
        group = self._groups.get(name)
        return dict(sorted(group.addresses.items())) if group and group.cluster == cluster else {}

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics with a queue on a broker of the cluster."""
        return self.queues.topics_at(
            {group.name for group in self._groups.values() if group.cluster == cluster}
        )

    # ---- parts of the above ----

    def _is_newer(self, holder: BrokerKey, version: DataVersion) -> bool:
        live = self._live.get(holder)
        return live is not None and live.data_version.state_version > version.state_version

    def _is_held(self, broker: BrokerInfo) -> bool:
        """Whether another live broker has the same name and id."""
        return any(live.info.broker_id == broker.broker_id for live in self._live.of_name(broker.name))

    def _join(self, group: BrokerGroup, broker: BrokerInfo) -> None:
        group.may_act_for_master = bool(broker.may_act_for_master)
        group.zone = broker.zone
        if group.addresses.get(broker.broker_id) == broker.address:
            return
        self._invalidate(group.name)
        # An address has one id: a slave that returns as master leaves its old one.
        group.drop(broker.address)
        group.addresses[broker.broker_id] = broker.address

    @staticmethod
    def _is_prime_slave(group: BrokerGroup, broker: BrokerInfo) -> bool:
        return broker.may_act_for_master is not None and broker.broker_id == min(group.addresses)

    def _take_topics(
        self,
        group: BrokerGroup,
        broker: BrokerInfo,
        table: TopicTable,
        topics: BrokerTopics,
        *,
        is_first: bool,
    ) -> None:
        is_changed = is_first or self.data_version(broker.key) != table.data_version
        if self._configuration.current.deletes_missing_topics and not topics.mappings:
            for topic in self.queues.topics_at({group.name}):
                if topic not in topics.queues:
                    self.queues.drop(topic, group.name)
        if broker.broker_id != MASTER_ID and group.may_act_for_master:
            topics = topics.for_reading()
        self.queues.put(topics.queues, only_missing=not is_changed)
        if is_changed:
            self.queues.put_mappings(group.name, topics)

    def _check_room(self, topics: BrokerTopics, newcomer: BrokerInfo | None = None) -> None:
        """Raises `RoutesFullError` if these topics, or another broker, would exceed the limits."""
        try:
            if newcomer is not None and len(self._live) >= BROKERS_MAX:
                raise RoutesFullError(f"this name server has {BROKERS_MAX} brokers, which is the limit")
            self.queues.check_room(topics)
        except RoutesFullError as error:
            if not self._is_full:
                log.error("brokers and topics are refused: %s", error)
            self._is_full = True
            raise

    def _leave_former_name(self, broker: BrokerInfo) -> None:
        """A renamed broker is one broker, not two. A registration on another connection is another broker."""
        if broker.key in self._live:
            return
        former = [
            live.info.key
            for live in self._live.of_address(broker.cluster, broker.address)
            if live.info.connection == broker.connection
        ]
        if former:
            self.unregister(former, former)
            for key in former:
                self._gone.back(broker._replace(name=key.name))

    def _tell_of_duplicate(self, group: BrokerGroup, broker: BrokerInfo) -> None:
        """Log that two live brokers have the same name and id: once, and again after one of them was down."""
        holder = group.addresses.get(broker.broker_id, broker.address)
        is_alive = BrokerKey(group.cluster, group.name, holder) in self._live
        known = self._live.get(broker.key)
        if holder == broker.address or not is_alive or (known and known.info.broker_id == broker.broker_id):
            return
        log.error("%s", duplicate(broker.name, (holder, broker.address), broker.broker_id))

    def _duplicates(self) -> dict[str, list[str]]:
        """The addresses of live brokers with the same name and id, by name."""
        found: dict[tuple[str, int], list[str]] = {}
        for live in self._live:
            found.setdefault((live.info.name, live.info.broker_id), []).append(live.info.address)
        return {name: addresses for (name, _), addresses in found.items() if len(addresses) > 1}

    def _master_of(self, group: BrokerGroup, broker: BrokerInfo) -> MasterAddresses:
        master = group.addresses.get(MASTER_ID)
        if broker.broker_id == MASTER_ID or master is None:
            return MasterAddresses()
        live = self._live.get(broker.key._replace(address=master))
        return MasterAddresses(master, live.info.replica_address) if live else MasterAddresses()

    def _invalidate(self, broker: str) -> None:
        """Parse the next registration of these brokers even if it equals the last one."""
        for live in self._live.of_name(broker):
            live.fingerprint = None
