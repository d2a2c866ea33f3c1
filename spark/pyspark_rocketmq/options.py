"""Options of the data source: one table that parses, checks and documents them.

Pure: neither PySpark nor the network. Spark hands over a dictionary whose keys are lower case and whose values are
text; `Options.parse` turns it into checked values or says what is wrong, with the nearest name for a misspelt one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal

from pyspark_rocketmq import values
from pyspark_rocketmq.offsets import LATEST, Bound, Queue


class OptionError(ValueError):
    """An option is unknown, missing, or has a value that cannot be used."""


#: What an option is for.
BATCH, STREAM, WRITE = "R", "S", "W"
_ROLES = {BATCH: "batch reads", STREAM: "streaming reads", WRITE: "writes"}


def _option(
    roles: str, name: str, parse: Callable[[str], Any], default: Any, meaning: str, *also: str
) -> Any:
    metadata = {"roles": roles, "name": name, "parse": parse, "meaning": meaning, "also": also}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one `load()` or `save()` was asked for. Field metadata: the option's name, what it is for, its meaning."""

    # What to read, or where to write.
    namesrv: str = _option(
        "RSW",
        "nameserver",
        values.text,
        "",
        "Name servers, `host:port;host:port`. Required.",
        "nameServer",
        "namesrvAddr",
    )
    topics: tuple[str, ...] = _option(
        "RS", "subscribe", values.names, (), "Topics to read, separated by commas.", "topic", "path"
    )
    pattern: str | None = _option(
        "RS",
        "subscribePattern",
        values.pattern,
        None,
        "Topics to read, as a regular expression for whole names; new ones join a running query.",
    )
    assigned: tuple[Queue, ...] = _option(
        "RS", "assign", values.queues, (), 'Queues to read, `{"topic":{"broker":[0,1]}}`.'
    )
    tags: str = _option(
        "RS",
        "subExpression",
        values.text,
        "*",
        'Only messages with one of these tags: `"paid \\|\\| refunded"`.',
    )
    topic: str | None = _option(
        "W", "topic", values.text, None, "Topic of all rows; wins over a column.", "path"
    )
    group: str = _option(
        "RS",
        "consumerGroup",
        values.text,
        "spark-rocketmq",
        "Group that brokers see reading. Nothing is committed under it without `commitOffsets`.",
    )
    # Where to begin and end.
    starting: Bound | None = _option(
        "RS",
        "startingOffsets",
        values.starting,
        None,
        "`earliest` (batch reads), `latest` (streams), `group` (what `consumerGroup` has committed), or JSON by topic, "
        "broker and queue; -2 is earliest, -1 latest. For the first start of a stream; then its checkpoint counts.",
    )
    ending: Bound = _option(
        "R",
        "endingOffsets",
        values.ending,
        LATEST,
        "Exclusive: `latest`, or JSON by topic, broker and queue; -1 is latest.",
    )
    starting_ms: int | None = _option(
        "RS",
        "startingTimestamp",
        values.time_ms,
        None,
        "First message stored at or after it, in milliseconds or ISO-8601; wins over the others.",
    )
    ending_ms: int | None = _option(
        "R", "endingTimestamp", values.time_ms, None, "Messages stored before it; wins over the others."
    )
    starting_times: Mapping[Queue, int] | None = _option(
        "RS",
        "startingOffsetsByTimestamp",
        values.times_ms,
        None,
        "Likewise by topic, broker and queue; wins over `startingOffsets`.",
    )
    ending_times: Mapping[Queue, int] | None = _option(
        "R", "endingOffsetsByTimestamp", values.times_ms, None, "Likewise; wins over `endingOffsets`."
    )
    when_none_is_new: str = _option(
        "RS",
        "startingOffsetsByTimestampStrategy",
        values.choice("error", "latest"),
        "error",
        "What to do where no queue of a topic has a message as new as asked for: `error`, or begin at the `latest`.",
    )
    # How much at a time.
    trigger_rows_max: int | None = _option(
        "S",
        "maxOffsetsPerTrigger",
        values.count(1),
        None,
        "Offsets a micro-batch takes at most, shared in proportion to what waits in each queue.",
    )
    trigger_bytes_max: int | None = _option(
        "S",
        "maxBytesPerTrigger",
        values.count(1),
        None,
        "Likewise in bytes, by the size of the next messages of each queue: an estimate.",
    )
    trigger_rows_min: int | None = _option(
        "S", "minOffsetsPerTrigger", values.count(1), None, "Wait until so many offsets are there, ..."
    )
    trigger_delay_s: float = _option(
        "S", "maxTriggerDelay", values.duration_s, 900.0, "... but no longer than this: `30s`, `15m`."
    )
    partitions_min: int = _option(
        "RS", "minPartitions", values.count(1), 1, "At least so many tasks, if there are as many rows."
    )
    partitions_max: int | None = _option(
        "RS", "maxPartitions", values.count(1), None, "At most so many tasks."
    )
    partition_rows_max: int | None = _option(
        "RS", "maxRecordsPerPartition", values.count(1), None, "Longer ranges of a queue are cut."
    )
    pack_rows: int = _option(
        "RS",
        "packRecords",
        values.count(0),
        10_000,
        "Short ranges share a task up to so many rows; 0: one task per range.",
    )
    batch_rows: int = _option("RS", "fetchBatchRows", values.count(1), 10_000, "Rows of one Arrow batch.")
    batch_bytes: int = _option(
        "RS", "fetchBatchBytes", values.count(1024), 8 << 20, "Bytes of one Arrow batch, roughly."
    )
    pull_rows: int = _option(
        "RS", "pullBatchSize", values.count(1), 4096, "Messages of one pull; the broker may give fewer."
    )
    # Patience.
    request_timeout_ms: int = _option(
        "RSW", "requestTimeoutMs", values.count(1), 3000, "Patience with one answer of a server."
    )
    pull_timeout_ms: int = _option("RS", "pullTimeoutMs", values.count(1), 10_000, "Patience with one pull.")
    fetch_retries: int = _option(
        "RS",
        "fetchOffset.numRetries",
        values.count(0),
        3,
        "How often a question for offsets is asked again, and a pull that fails or finds nothing.",
    )
    retry_interval_ms: int = _option(
        "RS", "fetchOffset.retryIntervalMs", values.count(1), 100, "Time before offsets are asked for again."
    )
    poll_interval_ms: int = _option(
        "S",
        "offsetPollIntervalMs",
        values.count(1),
        500,
        "Time between two looks at an idle topic. A message ends it; new queues and topics are found by looking.",
    )
    # Behaviour.
    is_loss_fatal: bool = _option(
        "RS",
        "failOnDataLoss",
        values.flag,
        True,
        "Fail when offsets to be read are no longer there; false: read what is.",
    )
    with_properties: bool = _option(
        "RS", "includeProperties", values.flag, True, "Whether the default schema has the `properties` map."
    )
    bad_text: Literal["fail", "null", "replace"] = _option(
        "RS",
        "bodyDecodeError",
        values.choice("fail", "null", "replace"),
        "fail",
        "A body asked for as string that is not UTF-8: `fail`, `null`, or `replace` what cannot be read.",
    )
    commits: bool = _option(
        "S",
        "commitOffsets",
        values.flag,
        False,
        "Store progress under `consumerGroup` for lag tools; it is read back by `startingOffsets=group` only.",
    )
    is_pushed_down: bool = _option(
        "R",
        "pushdown",
        values.flag,
        False,
        "Use filters on place, time and tags while planning. Needs `spark.sql.python.filterPushdown.enabled=true`.",
    )

    # Writing.
    producer_group: str = _option(
        "W", "producerGroup", values.text, "spark-rocketmq-sink", "Group that brokers see sending."
    )
    identity: tuple[str, ...] = _option(
        "W",
        "idempotencyKey",
        values.names,
        ("position",),
        "What makes a row's `msgId`, so that a repeated row repeats its id: `position` (task and row number), names of "
        "columns that identify a row, or `none`.",
    )
    selector: str = _option(
        "W",
        "queueSelector",
        values.choice("roundRobin", "hash", "column"),
        "roundRobin",
        "`roundRobin`, `hash` (of `shardingKey`, else of `keys`), or `column` (`queueId`, with `brokerName` if given).",
    )
    send_rows: int = _option(
        "W", "sendBatchMessages", values.count(1), 256, "Messages of one queue sent together, ..."
    )
    # A broker reads a request of this size where it reads small ones; larger ones share a budget.
    send_bytes: int = _option(
        "W", "sendBatchBytes", values.count(1), 128 << 10, "... and their bytes; a larger one goes alone."
    )
    sends_under_way: int = _option("W", "maxInFlight", values.count(1), 8, "Unanswered sends of one task.")
    send_retries: int = _option(
        "W", "sendRetries", values.count(0), 2, "How often a send that failed is tried again."
    )
    send_timeout_ms: int = _option(
        "W", "sendTimeoutMs", values.count(1), 3000, "Patience with one send, all its attempts together."
    )
    compress_bytes: int = _option(
        "W",
        "compressThreshold",
        values.count(1),
        4096,
        "Bodies of at least so many bytes are compressed, and go alone.",
    )
    creates_topic: bool = _option(
        "W",
        "createTopic",
        values.flag,
        False,
        "Whether a topic that does not exist is made by its first message.",
    )
    ignores_extra: bool = _option(
        "W",
        "ignoreExtraColumns",
        values.flag,
        False,
        "Drop columns the sink has no use for, instead of refusing them.",
    )
    with_spark_properties: bool = _option(
        "W",
        "sparkProperties",
        values.flag,
        False,
        "Give each message `SPARK_QUERY_ID`, `SPARK_BATCH_ID`, `SPARK_PARTITION_ID`.",
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
                name = option.metadata["name"]
                raise OptionError(f"option {name!r}: {error} (got {text[:60]!r})") from None
            spelt[option.name] = key
        options = cls(**found)
        options._check(role)
        return options

    def _check(self, role: str | None) -> None:
        if not self.namesrv:
            raise OptionError("option 'nameserver' is missing: .option('nameserver', 'host:9876')")
        if role in (BATCH, STREAM):
            sources = sum(map(bool, (self.topics, self.pattern, self.assigned)))
            if not sources:
                raise OptionError(
                    "option 'subscribe' is missing: .option('subscribe', 'topic'); "
                    "or give 'subscribePattern' or 'assign'"
                )
            if sources > 1:
                raise OptionError("give one of 'subscribe', 'subscribePattern' and 'assign'")
        if role == BATCH and self.starting == LATEST:
            raise OptionError(
                "option 'startingOffsets': a batch that starts at the latest message reads nothing"
            )
        if self.partitions_max is not None and self.partitions_max < self.partitions_min:
            raise OptionError("option 'maxPartitions' is less than 'minPartitions'")
        if (
            self.trigger_rows_max is not None
            and self.trigger_rows_min is not None
            and self.trigger_rows_max < self.trigger_rows_min
        ):
            raise OptionError("option 'maxOffsetsPerTrigger' is less than 'minOffsetsPerTrigger'")


#: What Spark adds to the options of a streaming sink: no business of ours.
_SPARKS_OWN = frozenset({"checkpointlocation"})

#: Options of the field's other connectors and of RocketMQ's own clients that are not served yet.
NOT_YET: Mapping[str, str] = {
    "accessKey": "access control",
    "secretKey": "access control",
    "securityToken": "access control",
    "tls": "TLS",
    "namespace": "namespaces",
    "subExpressionType": "SQL filters",
    "deliveryGuarantee": "a guarantee other than at least once with repeated ids",
    "txnAppId": "skipping a batch that was written before",
    "txnVersion": "skipping a batch that was written before",
    "waitStore": "sends that do not wait for the broker's store",
}
_REFUSED = {name.lower(): (name, reason) for name, reason in NOT_YET.items()}

_SPELLINGS: dict[str, list[Any]] = {}
for _each in fields(Options):
    for _spelling in (_each.metadata["name"], *_each.metadata["also"]):
        _SPELLINGS.setdefault(_spelling.lower(), []).append(_each)


def _find(key: str, role: str | None) -> Any:
    """The field an option sets; `None` for one that is Spark's."""
    if key.lower() in _SPARKS_OWN:
        return None
    if key.lower() in _REFUSED:
        name, reason = _REFUSED[key.lower()]
        raise OptionError(f"option {name!r} is not served yet: {reason}")
    known = _SPELLINGS.get(key.lower())
    if known is None:
        raise OptionError(_unknown(key, role))
    for each in known:
        if role is None or role in each.metadata["roles"]:
            return each
    right = " and ".join(_ROLES[each] for each in known[0].metadata["roles"])
    raise OptionError(f"option {known[0].metadata['name']!r} is for {right}, not for {_ROLES[str(role)]}")


def _unknown(key: str, role: str | None) -> str:
    fitting = {
        spelling: each.metadata["name"]
        for spelling, known in _SPELLINGS.items()
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
            "batch reads earliest, streams latest" if each.name == "starting" else values.shown(each.default)
        )
        lines.append(f"| {about['name']}{also} | {about['roles']} | {default} | {about['meaning']} |")
    return "\n".join(lines)
