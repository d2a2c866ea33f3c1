"""Options of the data source: one table that parses, checks and documents them.

Pure: neither PySpark nor the network. Spark hands over a dictionary whose keys are lower case and whose values are
text; `Options.parse` turns it into checked values or raises an error, with the nearest name for a misspelt one.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal

from pyspark_rocketmq import values
from pyspark_rocketmq.offsets import LATEST, Bound, Queue


class OptionError(ValueError):
    """An option is unknown, missing, or has a value that cannot be used."""


#: Roles an option is for.
BATCH, STREAM, WRITE = "R", "S", "W"
_ROLES = {BATCH: "batch reads", STREAM: "streaming reads", WRITE: "writes"}


def _option(
    roles: str,
    parse: Callable[[str], Any],
    default: Any,
    meaning: str,
    *,
    name: str = "",
    also: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    metadata = {"roles": roles, "name": name, "parse": parse, "meaning": meaning, "also": also}
    return field(default=default, metadata=metadata, repr=not secret)


def _flag(roles: str, default: bool, meaning: str) -> Any:
    return _option(roles, values.flag, default, meaning)


def _count(roles: str, default: int | None, meaning: str, *, least: int = 1, name: str = "") -> Any:
    return _option(roles, values.count(least), default, meaning, name=name)


def spelling(option: "Field[Any]") -> str:
    """The name of an option as users write it.

    >>> [spelling(each) for each in fields(Options)][3:5]
    ['subscribePattern', 'assign']
    """
    first, *rest = option.name.split("_")
    return str(option.metadata["name"]) or first + "".join(map(str.capitalize, rest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one `load()` or `save()`.

    A field is named as its option, in lower case with underscores, unless its metadata has another name; the metadata
    also have the roles the option is for, its parser and its meaning.
    """

    # What to read, or where to write.
    nameserver: str = _option(
        "RSW",
        values.text,
        "",
        "Name servers, `host:port;host:port`. Required.",
        also=("nameServer", "namesrvAddr"),
    )
    namespace: str = _option(
        "RSW",
        values.text,
        "",
        "Namespace of all topics and groups: `orders` of `shop` is `shop%orders` to clients without one.",
    )
    access_key: str = _option("RSW", values.text, "", "User that signs the requests, with `secretKey`.")
    secret_key: str = _option(
        "RSW", values.text, "", "Secret of that user; it travels to executors with the query.", secret=True
    )
    tls: bool = _option("RSW", values.flag, False, "Connections are encrypted.")
    tls_ca_file: str = _option(
        "RSW",
        values.text,
        "",
        "Authorities that vouch for servers, PEM, at this path on every executor; those of the system without.",
        name="tls.caFile",
    )
    tls_cert_file: str = _option(
        "RSW", values.text, "", "Certificate of the clients, PEM, likewise.", name="tls.certFile"
    )
    tls_key_file: str = _option("RSW", values.text, "", "Its key, likewise.", name="tls.keyFile")
    tls_server_name: str = _option(
        "RSW",
        values.text,
        "",
        "Name that servers' certificates are for, whatever their addresses.",
        name="tls.serverName",
    )
    tls_skip_verify: bool = _option(
        "RSW", values.flag, False, "Do not check who the servers are.", name="tls.skipVerify"
    )
    topics: tuple[str, ...] = _option(
        "RS",
        values.names,
        (),
        "Topics to read, separated by commas.",
        also=("topic", "path"),
        name="subscribe",
    )
    subscribe_pattern: str | None = _option(
        "RS",
        values.pattern,
        None,
        "Topics to read, as a regular expression for whole names; new ones join a running query.",
    )
    assign: tuple[Queue, ...] = _option(
        "RS", values.queues, (), 'Queues to read, `{"topic":{"broker":[0,1]}}`.'
    )
    expression: str = _option(
        "RS",
        values.text,
        "*",
        'Only messages with one of these tags: `"paid \\|\\| refunded"`; or an expression on properties.',
        name="subExpression",
    )
    expression_type: Literal["TAG", "SQL92"] = _option(
        "RS",
        values.choice("TAG", "SQL92"),
        "TAG",
        "`TAG`, or `SQL92`: `price > 10 AND region = 'EU'`; brokers need `enablePropertyFilter=true`.",
        name="subExpressionType",
    )
    topic: str | None = _option(
        "W", values.text, None, "Topic of all rows; wins over a column.", also=("path",)
    )
    consumer_group: str = _option(
        "RS",
        values.text,
        "spark-rocketmq",
        "Group that brokers see reading. Nothing is committed under it without `commitOffsets`.",
    )
    # Where to begin and end.
    starting_offsets: Bound | None = _option(
        "RS",
        values.starting,
        None,
        "`earliest` (batch reads), `latest` (streams), `group` (what `consumerGroup` has committed), or JSON by topic, "
        "broker and queue; -2 is earliest, -1 latest. For the first start of a stream; then its checkpoint counts.",
    )
    ending_offsets: Bound = _option(
        "R", values.ending, LATEST, "Exclusive: `latest`, or JSON by topic, broker and queue; -1 is latest."
    )
    starting_timestamp: int | None = _option(
        "RS",
        values.time_ms,
        None,
        "First message stored at or after it, in milliseconds or ISO-8601; wins over the others.",
    )
    ending_timestamp: int | None = _option(
        "R", values.time_ms, None, "Messages stored before it; wins over the others."
    )
    starting_offsets_by_timestamp: Mapping[Queue, int] | None = _option(
        "RS", values.times_ms, None, "Likewise by topic, broker and queue; wins over `startingOffsets`."
    )
    ending_offsets_by_timestamp: Mapping[Queue, int] | None = _option(
        "R", values.times_ms, None, "Likewise; wins over `endingOffsets`."
    )
    starting_offsets_by_timestamp_strategy: str = _option(
        "RS",
        values.choice("error", "latest"),
        "error",
        "For a topic without a message that new: `error`, or begin at the `latest`.",
    )
    # How much at a time.
    max_offsets_per_trigger: int | None = _count(
        "S", None, "Offsets a micro-batch takes at most, shared in proportion to what waits in each queue."
    )
    max_bytes_per_trigger: int | None = _count(
        "S", None, "Likewise in bytes, by the size of the next messages of each queue: an estimate."
    )
    min_offsets_per_trigger: int | None = _count("S", None, "Wait until so many offsets are there, ...")
    max_trigger_delay: float = _option(
        "S", values.duration_s, 900.0, "... but no longer than this: `30s`, `15m`."
    )
    min_partitions: int = _count("RS", 1, "At least so many tasks, if there are as many rows.")
    max_partitions: int | None = _count("RS", None, "At most so many tasks.")
    max_records_per_partition: int | None = _count("RS", None, "Longer ranges of a queue are cut.")
    pack_records: int = _count(
        "RS", 10_000, "Short ranges share a task up to so many rows; 0: one task per range.", least=0
    )
    fetch_batch_rows: int = _count("RS", 10_000, "Rows of one Arrow batch.")
    fetch_batch_bytes: int = _count("RS", 8 << 20, "Bytes of one Arrow batch, roughly.", least=1024)
    pull_batch_size: int = _count("RS", 4096, "Messages of one pull; the broker may give fewer.")
    # Timeouts and retries.
    request_timeout_ms: int = _count("RSW", 3000, "Timeout of one request to a server.")
    pull_timeout_ms: int = _count("RS", 10_000, "Timeout of one pull.")
    fetch_retries: int = _count(
        "RS",
        3,
        "Retries of a request for offsets, and of a pull that fails or finds nothing.",
        name="fetchOffset.numRetries",
        least=0,
    )
    retry_interval_ms: int = _count(
        "RS",
        100,
        "Time before the first such retry; it doubles, up to 10 s.",
        name="fetchOffset.retryIntervalMs",
    )
    offset_poll_interval_ms: int = _count(
        "S",
        500,
        "Interval of polling an idle topic. A message ends it early; new queues and topics are found by polling.",
    )
    # Behaviour.
    fail_on_data_loss: bool = _flag(
        "RS", True, "Fail when offsets to be read are no longer there; false: read what is."
    )
    include_properties: bool = _flag("RS", True, "Whether the default schema has the `properties` map.")
    body_decode_error: Literal["fail", "null", "replace"] = _option(
        "RS",
        values.choice("fail", "null", "replace"),
        "fail",
        "A body asked for as string that is not UTF-8: `fail`, `null`, or `replace` what cannot be read.",
    )
    commit_offsets: bool = _flag(
        "S",
        False,
        "Store progress under `consumerGroup` for lag tools; it is read back by `startingOffsets=group` only.",
    )
    pushdown: bool = _flag(
        "R",
        False,
        "Use filters on place, time and tags while planning. Needs `spark.sql.python.filterPushdown.enabled=true`.",
    )

    # Writing.
    producer_group: str = _option("W", values.text, "spark-rocketmq-sink", "Group that brokers see sending.")
    idempotency_key: tuple[str, ...] = _option(
        "W",
        values.names,
        ("position",),
        "What makes a row's `msgId`, so that a repeated row repeats its id: `position` (task and row number), names of "
        "columns that identify a row, or `none`.",
    )
    queue_selector: str = _option(
        "W",
        values.choice("roundRobin", "hash", "column"),
        "roundRobin",
        "`roundRobin`, `hash` (of `shardingKey`, else of `keys`), or `column` (`queueId`, with `brokerName` if given).",
    )
    send_batch_messages: int = _count("W", 256, "Messages of one queue sent together, ...")
    # A broker reads a request of this size where it reads small ones; larger ones share a budget.
    send_batch_bytes: int = _count("W", 128 << 10, "... and their bytes; a larger one goes alone.")
    max_in_flight: int = _count("W", 8, "Unanswered sends of one task.")
    send_retries: int = _count("W", 2, "Retries of a send that failed.", least=0)
    send_timeout_ms: int = _count("W", 3000, "Timeout of one send, all its attempts together.")
    compress_threshold: int = _count(
        "W", 4096, "Bodies of at least so many bytes are compressed, and go alone."
    )
    create_topic: bool = _flag(
        "W", False, "Whether a topic that does not exist is made by its first message."
    )
    ignore_extra_columns: bool = _flag(
        "W", False, "Drop columns the sink has no use for, instead of refusing them."
    )
    spark_properties: bool = _flag(
        "W", False, "Give each message `SPARK_QUERY_ID`, `SPARK_BATCH_ID`, `SPARK_PARTITION_ID`."
    )

    @classmethod
    def parse(cls, given: Mapping[str, str], role: str | None = None) -> "Options":
        """Check what the user gave, for one role or for any. Raises `OptionError` for the first thing that is wrong."""
        found: dict[str, Any] = {}
        spelt: dict[str, str] = {}
        for key, text in given.items():
            option = _find(key, role)
            if option is None:
                continue
            if option.name in found:
                raise OptionError(
                    f"options {spelt[option.name]!r} and {key!r} mean the same: give one of them"
                )
            try:
                found[option.name] = option.metadata["parse"](text)
            except ValueError as error:
                raise OptionError(f"option {spelling(option)!r}: {error} (got {text[:60]!r})") from None
            spelt[option.name] = key
        options = cls(**found)
        options._check(role)
        return options

    def _check(self, role: str | None) -> None:
        if not self.nameserver:
            raise OptionError("option 'nameserver' is missing: .option('nameserver', 'host:9876')")
        if not self.tls and any(
            (
                self.tls_ca_file,
                self.tls_cert_file,
                self.tls_key_file,
                self.tls_server_name,
                self.tls_skip_verify,
            )
        ):
            raise OptionError("options 'tls.…' are given, and connections would not be encrypted: add 'tls'")
        if role in (BATCH, STREAM):
            sources = sum(map(bool, (self.topics, self.subscribe_pattern, self.assign)))
            if not sources:
                raise OptionError(
                    "option 'subscribe' is missing: .option('subscribe', 'topic'); "
                    "or give 'subscribePattern' or 'assign'"
                )
            if sources > 1:
                raise OptionError("give one of 'subscribe', 'subscribePattern' and 'assign'")
        if role == BATCH and self.starting_offsets == LATEST:
            raise OptionError(
                "option 'startingOffsets': a batch that starts at the latest message reads nothing"
            )
        if self.max_partitions is not None and self.max_partitions < self.min_partitions:
            raise OptionError("option 'maxPartitions' is less than 'minPartitions'")
        if (
            self.max_offsets_per_trigger is not None
            and self.min_offsets_per_trigger is not None
            and self.max_offsets_per_trigger < self.min_offsets_per_trigger
        ):
            raise OptionError("option 'maxOffsetsPerTrigger' is less than 'minOffsetsPerTrigger'")


#: Options that Spark adds to those of a streaming sink, for itself.
_SPARKS_OWN = frozenset({"checkpointlocation"})

#: Options of other connectors and of RocketMQ's own clients that are not supported yet.
NOT_YET: Mapping[str, str] = {
    "securityToken": "temporary credentials",
    "deliveryGuarantee": "a guarantee other than at least once with repeated ids",
    "txnAppId": "skipping a batch that was written before",
    "txnVersion": "skipping a batch that was written before",
    "waitStore": "sends that do not wait for the broker's store",
}
#: Options of Spark's Kafka connector that have another name here.
KAFKAS: Mapping[str, str] = {
    "kafka.bootstrap.servers": "nameserver",
    "bootstrap.servers": "nameserver",
    "kafka.group.id": "consumerGroup",
    "groupidprefix": "consumerGroup",
}
_REFUSED = {name.lower(): (name, reason) for name, reason in NOT_YET.items()}

_SPELLINGS: dict[str, list[Any]] = {}
for _each in fields(Options):
    for _spelling in (spelling(_each), *_each.metadata["also"]):
        _SPELLINGS.setdefault(_spelling.lower(), []).append(_each)


def _find(key: str, role: str | None) -> Any:
    """The field an option sets; `None` for one that is Spark's."""
    if key.lower() in _SPARKS_OWN:
        return None
    if key.lower() in _REFUSED:
        name, reason = _REFUSED[key.lower()]
        raise OptionError(f"option {name!r} is not supported yet: {reason}")
    known = _SPELLINGS.get(key.lower())
    if known is None and (ours := KAFKAS.get(key.lower())):
        raise OptionError(f"option {key!r} is of Spark's Kafka source: here it is {ours!r}")
    if known is None:
        raise OptionError(_unknown(key, role))
    for each in known:
        if role is None or role in each.metadata["roles"]:
            return each
    right = " and ".join(_ROLES[each] for each in known[0].metadata["roles"])
    raise OptionError(f"option {spelling(known[0])!r} is for {right}, not for {_ROLES[str(role)]}")


def _unknown(key: str, role: str | None) -> str:
    fitting = {
        written: spelling(each)
        for written, known in _SPELLINGS.items()
        for each in known
        if role is None or role in each.metadata["roles"]
    }
    near = get_close_matches(key.lower(), fitting, 1, cutoff=0.6)
    if near:
        return f"unknown option {key!r}: did you mean {fitting[near[0]]!r}?"
    return f"unknown option {key!r}; known are {', '.join(sorted(set(fitting.values())))}"


def table() -> str:
    """The options as a Markdown table: what the documentation shows."""
    lines = ["| option | for | default | meaning |", "|---|---|---|---|"]
    for each in fields(Options):
        about = each.metadata
        also = f" (also {', '.join(about['also'])})" if about["also"] else ""
        default = (
            "batch reads earliest, streams latest"
            if each.name == "starting_offsets"
            else values.shown(each.default)
        )
        lines.append(f"| {spelling(each)}{also} | {about['roles']} | {default} | {about['meaning']} |")
    return "\n".join(lines)
