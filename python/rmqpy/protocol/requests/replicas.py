"""Between the brokers of one name: what a slave copies beside the log, and what a master knows of its slaves."""

from dataclasses import field

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, off_wire, record, reply, request
from rmqpy.protocol.topics import DataVersion


@record
class OffsetTable:
    """`topic@group` to queue id to offset. Apache's masters add members, which nobody needs."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)


@reply
class AllConsumerOffsets:
    """Queue ids are quoted: Apache's slaves cannot read them otherwise."""

    body: OffsetTable = OffsetTable()
    is_strict: bool = off_wire(default=True)


@request(RequestCode.GET_ALL_CONSUMER_OFFSET, needs=cluster(Action.GET))
class GetAllConsumerOffset(Request[AllConsumerOffsets]):
    """Every committed offset. Who knows `data_version` already, as JSON, is answered with an empty table by our brokers
    where it is still the newest."""

    data_version: str | None = None


@record
class DelayTable:
    """Delay level to the next offset in its queue."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[int, int] = field(default_factory=dict)


@request(RequestCode.GET_ALL_DELAY_OFFSET, needs=cluster(Action.GET))
class GetAllDelayOffset(Request[DelayTable]):
    """How far each delay level has been delivered."""


@request(RequestCode.GET_TIMER_CHECK_POINT, needs=cluster(Action.GET))
class GetTimerCheckPoint(Request[bytes]):
    """How far timed messages have been delivered: the first seven numbers of `timercheck`."""


@record
class MessageRequestModes:
    """Topic to group to how its members take messages, where they do not pull."""

    message_request_mode_map: dict[str, dict[str, object]] = field(default_factory=dict)


@request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, needs=cluster(Action.GET))
class GetAllMessageRequestMode(Request[MessageRequestModes]):
    """Who consumes by POP."""


@reply
class BrokerHaInfo:
    """Where a master is, for requests and for slaves."""

    master_ha_address: str | None = None
    master_flush_offset: int | None = None
    master_address: str | None = None
    #: Lets one connection in at the port for slaves, in hexadecimal digits; of our masters.
    ticket: str | None = None


@request(RequestCode.EXCHANGE_BROKER_HA_INFO, needs=cluster(Action.UPDATE))
class ExchangeBrokerHaInfo(Request[BrokerHaInfo]):
    """From a master that is about to serve: where it is. Without `master_ha_address` to a master: where it is, and with
    `wants_ticket`, which Apache's does not read, a ticket for its port for slaves."""

    master_ha_address: str | None = None
    master_flush_offset: int | None = None
    master_address: str | None = None
    wants_ticket: bool | None = None


@record
class SlaveConnection:
    """A slave at its master's. Positions are bytes of the log."""

    addr: str = ""
    slave_ack_offset: int = 0
    #: Bytes that it lacks.
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    #: Since it said something; of our brokers.
    silent_millis: int | None = None


@record
class MasterConnection:
    """The master, at its slave's. Times are milliseconds since the epoch, 0 where nothing was read."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    #: What follows is of our brokers: whether there is a connection, and since when nothing came on it, bytes that the
    #: slave lacked when it asked last, how long it has lacked some, and why there is no connection.
    is_connected: bool | None = None
    silent_millis: int | None = None
    behind_bytes: int | None = None
    behind_millis: int | None = None
    fault: str | None = None
    #: Whether the two logs do not fit together, so that an operator has to decide.
    is_diverged: bool | None = None
    #: Where the master takes requests, whether it answers them, and whether a name server knows it.
    broker_addr: str | None = None
    answers: bool | None = None
    is_registered: bool | None = None
    #: For how long there has been no connection; since the start where there was none.
    apart_millis: int | None = None


@record
class RefusedSlave:
    """A slave that was refused: its log does not fit the master's, or it showed no ticket and may be no slave."""

    addr: str = ""
    reason: str = ""
    lacks_ticket: bool | None = None


@record
class HaStatus:
    """Replication as one broker sees it."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[SlaveConnection] = field(default_factory=list)
    ha_client_runtime_info: MasterConnection = MasterConnection()
    #: Of a slave of ours: whether it acts for its master.
    is_acting: bool | None = None
    #: Of our brokers; None where there is none.
    refused_slaves: list[RefusedSlave] | None = None
    #: Of a master of ours: slaves that it should have, copies that a message has before it is answered with success,
    #: and replicas without which messages are refused; copies count the master.
    slaves_expected: int | None = None
    copies_wanted: int | None = None
    copies_min: int | None = None
    #: Of one that was promoted: since which epoch it leads, and the address of the master that it has replaced.
    led_since: int | None = None
    replaced: str | None = None
    #: Copies that answers promised before, where they were more.
    copies_before: int | None = None


@request(RequestCode.GET_BROKER_HA_STATUS, needs=cluster(Action.GET))
class GetBrokerHaStatus(Request[HaStatus]):
    """The slaves of a master, or the master of a slave."""
