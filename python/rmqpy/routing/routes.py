"""Routes: the brokers that live, and the topics that have queues there.

Owns the groups of brokers by name and one sign of life per broker. Name servers do not know each other; every table
here is rebuilt by what brokers say.

Invariants: a group has at least one address; a broker whose queues are listed is in its group. A refused registration
leaves no trace.

Threads: the event loop's only; every method returns without waiting.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from rmqpy.clock import Clock
from rmqpy.findings import duplicate
from rmqpy.protocol import names
from rmqpy.protocol.requests.routes import MASTER_ID, ClusterInfo, QueueData, TopicRoute
from rmqpy.protocol.topics import DataVersion, TopicTable
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
from rmqpy.routing.configuration import Configuration
from rmqpy.routing.live_brokers import LiveBrokers
from rmqpy.routing.route_filter import with_acting_master
from rmqpy.routing.topic_queues import BrokerTopics, RoutesFullError, TopicQueues

log = logging.getLogger(__name__)


class Routes:
    """The tables."""

    def __init__(self, clock: Clock, configuration: Configuration) -> None:
        self._clock = clock
        self._configuration = configuration
        self._groups: dict[str, BrokerGroup] = {}
        self.queues = TopicQueues()
        self._live = LiveBrokers()
        #: Whether it has been written down that there is no room, and nothing has left since.
        self._is_full = False
        #: Called with every such change, once the tables are in order again.
        self.on_min_broker_id_change: Callable[[MinBrokerIdChange], None] = lambda change: None

    # ---- brokers come and go ----

    def register(
        self,
        broker: BrokerInfo,
        table: TopicTable,
        fingerprint: bytes | None = None,
        topics: BrokerTopics | None = None,
    ) -> MasterAddresses:
        """Take a broker and its topics in. `topics`: those of the table, where they have been read already.

        Raises `SingleTopicTooEarly`, and `RoutesFullError`: a broker that is known stays as it was.
        """
        key = broker.key
        group = self._groups.get(broker.name)
        holder = group.addresses.get(broker.broker_id) if group else None
        if holder is None and len(table.topic_config_table) == 1:
            raise SingleTopicTooEarly(broker.name)
        if holder not in (None, broker.address) and self._is_newer(
            key._replace(address=holder), table.data_version
        ):
            # The holder has seen a later election than this broker, which will find out by itself.
            log.warning("broker %s at %s is outdated by %s", broker.name, broker.address, holder)
            self._live.drop(key)
            return MasterAddresses()
        topics = topics or BrokerTopics.read(broker.name, table)
        live = self._live.get(key)
        try:
            self._check_room(topics, newcomer=None if live else broker)
        except RoutesFullError:
            if live is not None:
                # What it has registered before stays for as long as it lives.
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
        if broker.broker_id == MASTER_ID or self._is_prime_slave(group, broker):
            self._take_topics(group, broker, table, topics, is_first=holder is None)
        self._live.put(BrokerLiveInfo(broker, table.data_version, fingerprint, self._clock.elapsed()))
        if broker.broker_id < smallest:
            self.on_min_broker_id_change(
                MinBrokerIdChange(group.name, group.addresses, replica_address=broker.replica_address)
            )
        return self._master_of(group, broker)

    def renew(self, broker: BrokerInfo, fingerprint: bytes) -> MasterAddresses | None:
        """A registration that equals the last one is a sign of life: `None` when it is not, and must be read.

        A broker repeats its table every 30 s, and reading 20,000 topics would hold up every other caller.
        """
        live = self._live.get(broker.key)
        if live is None or live.fingerprint != fingerprint:
            return None
        if live.info._replace(connection=broker.connection) != broker:
            return None
        self._live.put(replace(live, info=broker, last_seen=self._clock.elapsed()))
        return self._master_of(self._groups[broker.name], broker)

    def unregister(self, brokers: Iterable[BrokerKey]) -> None:
        """Brokers are gone; so are the topics that were nowhere else. Many together cost little more than a few."""
        removed: set[str] = set()
        #: Clients may read from a slave that acts for its master, and write to none.
        read_only: set[str] = set()
        #: Groups whose smallest id has gone, and its address.
        outlived: dict[str, str] = {}
        for key in brokers:
            self._is_full = False
            self._live.drop(key)
            name, address = key.name, key.address
            group = self._groups.get(name)
            if group is None or address not in group.addresses.values():
                continue
            log.info("broker %s at %s is gone", name, address)
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
                self.on_min_broker_id_change(
                    MinBrokerIdChange(name, self._groups[name].addresses, gone=address)
                )

    def brokers_of(self, connection: int) -> list[BrokerKey]:
        """Every broker whose last sign of life came on this connection."""
        return self._live.of_connection(connection)

    def expire(self) -> list[int]:
        """Remove brokers that were silent for too long; the connections they used are the caller's to close."""
        now = self._clock.elapsed()
        silent = [live.info for live in self._live if live.is_expired(now)]
        self.unregister([info.key for info in silent])
        return [info.connection for info in silent]

    def heartbeat(self, broker: BrokerKey) -> None:
        """A sign of life of a broker that is known; of another one it means nothing."""
        live = self._live.get(broker)
        if live is not None:
            live.last_seen = self._clock.elapsed()

    def data_version(self, broker: BrokerKey) -> DataVersion | None:
        """The version of the table a broker registered last."""
        live = self._live.get(broker)
        return live.data_version if live else None

    # ---- topics ----

    def add_queues(self, topic: str, queues: list[QueueData]) -> None:
        """Merge queues of one topic; what follows one at an unknown broker is dropped, as Java does.

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
        """Forget a topic, in one cluster or everywhere."""
        for group in self._groups.values():
            if cluster in (None, group.cluster):
                self._is_full = False
                self.queues.drop(topic, group.name)
                self._invalidate(group.name)

    # ---- answers ----

    def route(self, topic: str, order: str | None = None) -> TopicRoute | None:
        """The queues of a topic, the brokers they are at, and their order; `None` when there are none."""
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
        )

    def members(self, cluster: str, name: str) -> dict[int, str]:
        """The addresses of one group by id."""
        group = self._groups.get(name)
        return dict(sorted(group.addresses.items())) if group and group.cluster == cluster else {}

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics with a queue at a broker of the cluster."""
        return self.queues.topics_at(
            {group.name for group in self._groups.values() if group.cluster == cluster}
        )

    # ---- parts of the above ----

    def _is_newer(self, holder: BrokerKey, version: DataVersion) -> bool:
        live = self._live.get(holder)
        return live is not None and live.data_version.state_version > version.state_version

    def _join(self, group: BrokerGroup, broker: BrokerInfo) -> None:
        group.may_act_for_master = bool(broker.may_act_for_master)
        group.zone = broker.zone
        if group.addresses.get(broker.broker_id) == broker.address:
            return
        self._invalidate(group.name)
        # An address has one id: a slave that comes back as master leaves its old place.
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
        """Raises `RoutesFullError` where there is no room for these topics, or for another broker."""
        try:
            if newcomer is not None and len(self._live) >= BROKERS_MAX:
                raise RoutesFullError(f"this name server knows {BROKERS_MAX} brokers and takes no more")
            self.queues.check_room(topics)
        except RoutesFullError as error:
            if not self._is_full:
                log.error("brokers and topics are refused: %s", error)
            self._is_full = True
            raise

    def _leave_former_name(self, broker: BrokerInfo) -> None:
        """A broker that has got another name is one, not two. What comes on another connection is another broker."""
        if broker.key in self._live:
            return
        former = [
            live.info.key
            for live in self._live.of_address(broker.cluster, broker.address)
            if live.info.connection == broker.connection
        ]
        if former:
            self.unregister(former)

    def _tell_of_duplicate(self, group: BrokerGroup, broker: BrokerInfo) -> None:
        """Write down that two living brokers have one name and id: once, and again after one of them was away."""
        holder = group.addresses.get(broker.broker_id, broker.address)
        is_alive = BrokerKey(group.cluster, group.name, holder) in self._live
        known = self._live.get(broker.key)
        if holder == broker.address or not is_alive or (known and known.info.broker_id == broker.broker_id):
            return
        log.error("%s", duplicate(broker.name, (holder, broker.address), broker.broker_id))

    def _duplicates(self) -> dict[str, list[str]]:
        """The addresses of living brokers of one name and id, by name."""
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
        """Read the next registration of these brokers even if it equals the last one."""
        for live in self._live.of_name(broker):
            live.fingerprint = None
