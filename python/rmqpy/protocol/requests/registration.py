"""Registrations, unregistrations and heartbeats of brokers at name servers."""

import zlib
from typing import Final, NamedTuple

from rmqpy.errors import DecodeError
from rmqpy.protocol import fastjson
from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.declare import Request, json_tree, read_json, record, reply, request, wire
from rmqpy.protocol.topics import DataVersion, TopicConfig, TopicFilterType, TopicTable

#: The most bytes of a registration, which is one frame, and of an inflated one; 50,000 topics take about 10 MiB.
BODY_BYTES_MAX: Final = 16 << 20
#: The highest compression ratio beyond the first 64 KiB; topic tables shrink to a tenth.
UNPACKED_RATIO_MAX: Final = 100
UNPACKED_BYTES_MIN: Final = 64 << 10
#: The piece of a body that is inflated in one step, to at most 1,032 times its size.
_PIECE_BYTES: Final = 1 << 10
#: The most topics of one broker.
TOPICS_MAX: Final = 100_000
#: The most values in a table, each of which takes some 60 bytes when parsed: twelve per topic.
_VALUES_MAX: Final = 12 * TOPICS_MAX
#: The largest number of a topic that a Java client can parse.
TOPIC_NUMBER_MAX: Final = (1 << 31) - 1
#: Brokers before 3.0.11 send only the topic table.
_VERSION_WITH_FILTER_SERVERS: Final = 37
#: Brokers since 5.0 append the mappings of static topics to a compressed body.
_VERSION_WITH_MAPPINGS: Final = 413


@record
class KvTable:
    table: dict[str, str]


@reply
class Registered:
    """For a slave, the address of its master; the order topics, if there are any."""

    master_addr: str | None = None
    ha_server_addr: str | None = None
    body: KvTable | None = None


@request(RequestCode.REGISTER_BROKER, body_bytes_max=BODY_BYTES_MAX, needs=cluster(Action.UPDATE))
class RegisterBroker(Request[Registered]):
    """A broker's whole table, or later also a single changed topic. `Registration` is the body."""

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    #: The timeout without heartbeats after which the name server drops the broker; absent: 120 s.
    heartbeat_timeout_millis: int | None = None
    #: Absent: a broker that is too old to act for its master.
    enable_acting_master: bool | None = None
    compressed: bool = False
    #: CRC-32 of the body without its sign bit; 0 is not checked.
    body_crc32: int = 0
    zone_name: str | None = wire("__ZONE_NAME", default=None)
    body: bytes = b""


@request(RequestCode.UNREGISTER_BROKER, needs=cluster(Action.UPDATE))
class UnregisterBroker(Request[None]):
    """Unregistration of a broker."""

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: int


@reply
class HeartbeatTaken:
    """The fields come from rmqpy's controllers only: the recorded epoch, and for the master of that epoch the
    time for which it may acknowledge, counted from the moment it sent the heartbeat."""

    master_epoch: int | None = None
    lease_millis: int | None = None


@request(RequestCode.BROKER_HEARTBEAT, needs=cluster(Action.UPDATE))
class BrokerHeartbeat(Request[HeartbeatTaken]):
    """A heartbeat without a table. Name servers need the first three fields, controllers the id as well."""

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: int | None = None
    #: The newest epoch of the log, -1 without one; the end of the log; the position confirmed by the replicas in sync.
    epoch: int | None = None
    max_offset: int | None = None
    confirm_offset: int | None = None
    #: The silence after which the controller takes the broker for dead.
    heartbeat_timeout_mills: int | None = None
    #: Smaller is preferred.
    election_priority: int | None = None
    #: The sender has stopped acknowledging; rmqpy only.
    release_lease: bool | None = None


@reply
class VersionCompared:
    """Whether the name server's table differs, and its version if it knows the broker."""

    changed: bool
    body: DataVersion | None = None


@request(RequestCode.QUERY_DATA_VERSION, needs=cluster(Action.GET))
class QueryDataVersion(Request[VersionCompared]):
    """Query whether a new registration is needed; also a heartbeat."""

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: int
    body: DataVersion


@request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, needs=cluster(Action.UPDATE))
class NotifyMinBrokerIdChange(Request[None]):
    """From a name server to the brokers of a group: the smallest id has changed. One-way."""

    min_broker_id: int
    broker_name: str
    min_broker_addr: str
    #: The broker that left; absent if one joined.
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@record
class Registration:
    """The body of `RegisterBroker`."""

    topic_config_serialize_wrapper: TopicTable
    filter_server_list: list[str] | None = None


class PackedBody(NamedTuple):
    """A body and its checksum: two fields of one request that must agree."""

    body: bytes
    body_crc32: int


def pack(topics: TopicTable) -> PackedBody:
    """The body a broker sends: `RegisterBroker(..., **pack(topics)._asdict())`."""
    tree = json_tree(Registration(topic_config_serialize_wrapper=topics, filter_server_list=[]))
    body = fastjson.dumps(tree).encode("utf-8", "replace")
    return PackedBody(body, checksum(body))


def checksum(body: bytes) -> int:
    """CRC-32 as Java keeps it in an `int`, without the sign."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def unpack(ask: RegisterBroker, version: int) -> Registration:
    """The content of a registration of a broker of this version. Raises `DecodeError`."""
    if not ask.body:
        return Registration(topic_config_serialize_wrapper=TopicTable())
    if ask.compressed:
        found = _unfold(ask.body, version)
    elif (values := sum(map(ask.body.count, (b",", b"{", b"[")))) > _VALUES_MAX:
        raise DecodeError(f"the registration has {values} values", code=ResponseCode.INVALID_PARAMETER)
    elif version < _VERSION_WITH_FILTER_SERVERS:
        found = Registration(topic_config_serialize_wrapper=read_json(TopicTable, ask.body))
    else:
        found = read_json(Registration, ask.body)
    _check_count(len(found.topic_config_serialize_wrapper.topic_config_table))
    for name, topic in found.topic_config_serialize_wrapper.topic_config_table.items():
        if fault := _number_fault(topic):
            raise DecodeError(f"topic {name[:80]}: {fault}", code=ResponseCode.INVALID_PARAMETER)
    return found


def _check_count(topics: int) -> None:
    if topics > TOPICS_MAX:
        raise DecodeError(
            f"the broker has {topics} topics, more than {TOPICS_MAX}", code=ResponseCode.INVALID_PARAMETER
        )


def _number_fault(topic: TopicConfig) -> str | None:
    """Return an error for a number that clients could not parse, or None."""
    for number in (topic.read_queue_nums, topic.write_queue_nums, topic.perm):
        if not (0 <= number <= TOPIC_NUMBER_MAX):
            return f"a number is not from 0 to {TOPIC_NUMBER_MAX}"
    return None


# ---- compressed bodies -------------------------------------------------------------------------------------
# zlib over: version, count, topics as `name read write perm filterType {attributes}`, filter servers. Each part
# but the count is preceded by its length. Newer brokers append the number of mappings of static topics, and each.


def _unfold(body: bytes, version: int) -> Registration:
    parts = _Parts(_inflate(body))
    data_version = read_json(DataVersion, parts.text())
    _check_count(count := parts.count())
    topics = [_topic(parts.text()) for _ in range(count)]
    filter_servers = read_json(list[str], parts.text())
    mappings: dict[str, object] = {}
    if version >= _VERSION_WITH_MAPPINGS and not parts.is_at_end:
        _check_count(count := parts.count())
        infos = [read_json(dict[str, object], parts.text()) for _ in range(count)]
        mappings = {str(info.get("topic")): info for info in infos}
    table = TopicTable(
        data_version=data_version,
        topic_config_table={topic.topic_name: topic for topic in topics},
        topic_queue_mapping_info_map=mappings,
    )
    return Registration(topic_config_serialize_wrapper=table, filter_server_list=filter_servers)


def _inflate(body: bytes) -> bytes:
    """Inflate piece by piece, so that other threads can run and too large results are discarded."""
    inflate = zlib.decompressobj()
    room = min(BODY_BYTES_MAX, UNPACKED_BYTES_MIN + UNPACKED_RATIO_MAX * len(body))
    parts: list[bytes] = []
    try:
        for at in range(0, len(body), _PIECE_BYTES):
            parts.append(part := inflate.decompress(body[at : at + _PIECE_BYTES]))
            room -= len(part)
            if room < 0 or inflate.eof:
                break
    except zlib.error as error:
        raise _malformed(str(error)) from None
    if room < 0 or not inflate.eof:
        raise _malformed("it is truncated or too large")
    return b"".join(parts)


class _Parts:
    """Sequential parser of an inflated body."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._content)

    def count(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def text(self) -> str:
        try:
            return self._take(self.count()).decode("utf-8")
        except UnicodeDecodeError:
            raise _malformed("a text is not UTF-8") from None

    def _take(self, size: int) -> bytes:
        taken = self._content[self._at : self._at + size]
        if len(taken) < size:
            raise _malformed("it ends too early")
        self._at += size
        return taken


def _topic(line: str) -> TopicConfig:
    try:
        name, reads, writes, perm, filter_type, *attributes = line.split(" ", 5)
        return TopicConfig(
            topic_name=name,
            read_queue_nums=int(reads),
            write_queue_nums=int(writes),
            perm=int(perm),
            topic_filter_type=TopicFilterType[filter_type],
            attributes=read_json(dict[str, str], attributes[0]) if attributes else {},
        )
    except (ValueError, KeyError, DecodeError):
        raise _malformed(f"no topic in {line[:80]!r}") from None


def _malformed(why: str) -> DecodeError:
    return DecodeError(f"the compressed registration is malformed: {why}", code=ResponseCode.SYSTEM_ERROR)
