"""Replication between brokers of one name: data copied besides the log, and a master's view of its slaves."""

from dataclasses import field

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, off_wire, record, reply, request
from rmqpy.protocol.orders import OrderTable
from rmqpy.protocol.topics import DataVersion


@record
class OffsetTable:
    """`topic@group` → queue id → offset. Apache's masters add members that are not used."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    #: `topic@group` → offset, of groups that only read light queues; of masters that have those.
    lmq_offset_table: dict[str, int] | None = None
    #: What groups hold that pop in order; rmqpy only.
    order_table: OrderTable | None = None


@reply
class AllConsumerOffsets:
    """Queue ids are quoted: Apache's slaves cannot read them otherwise."""

    body: OffsetTable = OffsetTable()
    is_strict: bool = off_wire(default=True)


@request(RequestCode.GET_ALL_CONSUMER_OFFSET, needs=cluster(Action.GET))
class GetAllConsumerOffset(Request[AllConsumerOffsets]):
    """Every committed offset. rmqpy's brokers return an empty table if the sender's `data_version`, as JSON, is still
    the newest; and, if it `wants_orders`, what groups hold that pop in order."""

    data_version: str | None = None
    wants_orders: bool | None = None


@record
class DelayTable:
    """Delay level to the next offset in its queue."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[int, int] = field(default_factory=dict)


@request(RequestCode.GET_ALL_DELAY_OFFSET, needs=cluster(Action.GET))
class GetAllDelayOffset(Request[DelayTable]):
    """The progress of each delay level."""


@request(RequestCode.GET_TIMER_CHECK_POINT, needs=cluster(Action.GET))
class GetTimerCheckPoint(Request[bytes]):
    """The progress of timed messages: the first seven numbers of `timercheck`."""


@reply
class BrokerHaInfo:
    """The addresses of a master, for requests and for slaves."""

    master_ha_address: str | None = None
    master_flush_offset: int | None = None
    master_address: str | None = None
    #: A ticket for one connection to the port for slaves, in hexadecimal digits; of rmqpy's masters.
    ticket: str | None = None
    #: Whether the connection with this ticket is an observer's, as requested.
    is_observer: bool | None = None


@request(RequestCode.EXCHANGE_BROKER_HA_INFO, needs=cluster(Action.UPDATE))
class ExchangeBrokerHaInfo(Request[BrokerHaInfo]):
    """From a starting master: its address. Without `master_ha_address`, to a master: query of its address and, with
    `wants_ticket`, which Apache's ignores, of a ticket for its port for slaves. `slave_id` is the id that a controller
    gave to the sender. An observer reads the log and counts as no copy of it, like a backup; it may name its folder,
    and at the end of its run report the end of the log in it."""

    master_ha_address: str | None = None
    master_flush_offset: int | None = None
    master_address: str | None = None
    wants_ticket: bool | None = None
    slave_id: int | None = None
    is_observer: bool | None = None
    observer_name: str | None = None
    observer_end: int | None = None


@record
class SlaveConnection:
    """A slave, as its master sees it. Positions are bytes of the log."""

    addr: str = ""
    slave_ack_offset: int = 0
    #: Its lag in bytes.
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    #: Time since its last message; rmqpy only.
    silent_millis: int | None = None


@record
class MasterConnection:
    """The master, as its slave sees it. Times are milliseconds since the epoch, 0 if nothing was read."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    #: The following are rmqpy only: whether there is a connection, and the time since its last message; the lag in
    #: bytes at the last request, and its duration; and the reason for no connection.
    is_connected: bool | None = None
    silent_millis: int | None = None
    behind_bytes: int | None = None
    behind_millis: int | None = None
    fault: str | None = None
    #: Whether the two logs diverge, so that an operator must decide.
    is_diverged: bool | None = None
    #: The master's address for requests, whether it answers, and whether a name server knows it.
    broker_addr: str | None = None
    answers: bool | None = None
    is_registered: bool | None = None
    #: The time without a connection, at most since the start.
    apart_millis: int | None = None


@record
class RefusedSlave:
    """A refused slave: its log diverges, or it had no ticket and may not be a slave."""

    addr: str = ""
    reason: str = ""
    lacks_ticket: bool | None = None


@record
class BackupReport:
    """A folder of `rmqpy backup`, as its master knows it. Clocks differ, so times are spans."""

    name: str
    #: The address of the last run.
    addr: str
    began_ago_millis: int
    #: Of the last complete run; `None` before the first one.
    ended_ago_millis: int | None = None
    #: The end of the log in it, and the bytes that the log has gained since.
    log_end: int = 0
    diff: int = 0


@record
class HaStatus:
    """Replication, as one broker sees it."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[SlaveConnection] = field(default_factory=list)
    ha_client_runtime_info: MasterConnection = MasterConnection()
    #: Slaves of rmqpy: whether it acts for its master.
    is_acting: bool | None = None
    #: Whether controllers elect the master; rmqpy only.
    is_elected: bool | None = None
    #: The newest epoch of the log; rmqpy only, None without one.
    epoch: int | None = None
    #: Masters of rmqpy with a lease of a controller: how long they may acknowledge without another heartbeat.
    lease_left_millis: int | None = None
    #: rmqpy only; None without one.
    refused_slaves: list[RefusedSlave] | None = None
    #: Masters of rmqpy: the last reports of disconnected slaves.
    lost_slaves: list[SlaveConnection] | None = None
    #: Masters of rmqpy: backups, that with the latest run first.
    backups: list[BackupReport] | None = None
    #: Masters of rmqpy: expected slaves, copies before a message is acknowledged with success, and replicas without
    #: which messages are refused; copies include the master.
    slaves_expected: int | None = None
    copies_wanted: int | None = None
    copies_min: int | None = None
    #: Promoted masters: the epoch since which it leads, and the address of the replaced master.
    led_since: int | None = None
    replaced: str | None = None
    #: The previous promise of copies, if it was higher.
    copies_before: int | None = None
    #: Time since its start, until all its slaves have been connected once.
    started_millis: int | None = None


@request(RequestCode.GET_BROKER_HA_STATUS, needs=cluster(Action.GET))
class GetBrokerHaStatus(Request[HaStatus]):
    """The slaves of a master, or the master of a slave."""
