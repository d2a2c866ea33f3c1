"""Options of the data source: one table that parses, checks and documents them.

Pure: imports neither PySpark nor the network. Spark passes a dictionary with lower-case keys and text values.
`Options.parse` returns checked values, or raises an error that suggests the nearest name for a misspelt one.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal

from pyspark_rocketmq import values
from pyspark_rocketmq.offsets import LATEST, Bound, Queue


class OptionError(ValueError):
    """An option is unknown or missing, or its value is not valid."""


#: The operations an option applies to.
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
    in_repr: bool = True,
) -> Any:
    metadata = {"roles": roles, "name": name, "parse": parse, "meaning": meaning, "also": also}
    return field(default=default, metadata=metadata, repr=in_repr)


def _flag(roles: str, default: bool, meaning: str) -> Any:
    return _option(roles, values.flag, default, meaning)


def _count(roles: str, default: int | None, meaning: str, *, least: int = 1, name: str = "") -> Any:
    return _option(roles, values.count(least), default, meaning, name=name)


def spelling(option: "Field[Any]") -> str:
    """Return the name of an option as users write it.

    >>> [spelling(each) for each in fields(Options)][3:5]
    ['subscribePattern', 'assign']
    """
    first, *rest = option.name.split("_")
    return str(option.metadata["name"]) or first + "".join(map(str.capitalize, rest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one `load()` or `save()`.

    The name of a field is that of its option in lower case with underscores, unless its metadata has another name. The
    metadata also has the roles of the option, its parser and its meaning.
    """

    engine: Literal["python"] = _option(
        "RSW",
        values.engine,
        "python",
        "`python`. The engine in Spark's JVM is a format, [rocketmq-jvm](#real-time-mode).",
    )
    # Topics and connections.
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
        "RSW",
        values.text,
        "",
        "Secret of that user. Spark sends it to executors with the query.",
        in_repr=False,
    )
    tls: bool = _option("RSW", values.flag, False, "Encrypt connections.")
    tls_ca_file: str = _option(
        "RSW",
        values.text,
        "",
        "Certificate authorities of the servers, PEM, at this path on every executor. Default: those of the system.",
        name="tls.caFile",
    )
    tls_cert_file: str = _option(
        "RSW",
        values.text,
        "",
        "Certificate of the client, PEM, at this path on every executor.",
        name="tls.certFile",
    )
    tls_key_file: str = _option(
        "RSW",
        values.text,
        "",
        "Private key of that certificate, PEM, at this path on every executor.",
        name="tls.keyFile",
    )
    tls_server_name: str = _option(
        "RSW",
        values.text,
        "",
        "Name in the certificates of servers, if it differs from their addresses.",
        name="tls.serverName",
    )
    tls_skip_verify: bool = _option(
        "RSW", values.flag, False, "Do not verify the certificates of servers.", name="tls.skipVerify"
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
        "Topics to read, as a regular expression that matches whole names. New topics join a running query.",
    )
    assign: tuple[Queue, ...] = _option(
        "RS", values.queues, (), 'Queues to read, `{"topic":{"broker":[0,1]}}`.'
    )
    expression: str = _option(
        "RS",
        values.text,
        "*",
        'Filter of messages: tags, such as `"paid \\|\\| refunded"`, or an expression on properties.',
        name="subExpression",
    )
    expression_type: Literal["TAG", "SQL92"] = _option(
        "RS",
        values.choice("TAG", "SQL92"),
        "TAG",
        "`TAG`, or `SQL92`, such as `price > 10 AND region = 'EU'`. Brokers need `enablePropertyFilter=true` for SQL.",
        name="subExpressionType",
    )
    topic: str | None = _option(
        "W", values.text, None, "Topic of all rows. Overrides a column `topic`.", also=("path",)
    )
    consumer_group: str = _option(
        "RS",
        values.text,
        "spark-rocketmq",
        "Consumer group of the reads. The connector commits offsets under it only with `commitOffsets`.",
    )
    # Start and end.
    starting_offsets: Bound | None = _option(
        "RS",
        values.starting,
        None,
        "`earliest` (default of batch reads), `latest` (default of streams), `group` (offsets committed by "
        "`consumerGroup`), or JSON by topic, broker and queue, where -2 is earliest and -1 latest. A stream uses it "
        "for its first start, and its checkpoint afterwards.",
    )
    ending_offsets: Bound = _option(
        "R",
        values.ending,
        LATEST,
        "Exclusive end: `latest`, or JSON by topic, broker and queue, where -1 is latest.",
    )
    starting_timestamp: int | None = _option(
        "RS",
        values.time_ms,
        None,
        "Start at the first message stored at or after this time, in milliseconds or ISO-8601. Overrides other starts.",
    )
    ending_timestamp: int | None = _option(
        "R",
        values.time_ms,
        None,
        "End at the first message stored at or after this time. Overrides the other ends.",
    )
    starting_offsets_by_timestamp: Mapping[Queue, int] | None = _option(
        "RS",
        values.times_ms,
        None,
        "Starting times as JSON by topic, broker and queue. Overrides `startingOffsets`.",
    )
    ending_offsets_by_timestamp: Mapping[Queue, int] | None = _option(
        "R",
        values.times_ms,
        None,
        "Ending times as JSON by topic, broker and queue. Overrides `endingOffsets`.",
    )
    starting_offsets_by_timestamp_strategy: str = _option(
        "RS",
        values.choice("error", "latest"),
        "error",
        "For a topic without messages since the starting time: `error`, or start at the `latest` message.",
    )
    # Sizes of micro-batches, tasks and pulls.
    max_offsets_per_trigger: int | None = _count(
        "S",
        None,
        "Maximum number of offsets in a micro-batch, shared in proportion to the backlog of each queue.",
    )
    max_bytes_per_trigger: int | None = _count(
        "S", None, "Maximum size of a micro-batch, estimated from the next messages of each queue."
    )
    min_offsets_per_trigger: int | None = _count("S", None, "Minimum number of offsets in a micro-batch.")
    max_trigger_delay: float = _option(
        "S", values.duration_s, 900.0, "Maximum wait for `minOffsetsPerTrigger`, such as `30s` or `15m`."
    )
    available_now: bool = _flag(
        "S",
        False,
        "End each run where the topics end when it starts. For Spark 4.0 and 4.1, which do not announce "
        "`Trigger.AvailableNow` to Python sources.",
    )
    min_partitions: int = _count("RS", 1, "Minimum number of tasks, if there are as many rows.")
    max_partitions: int | None = _count("RS", None, "Maximum number of tasks.")
    max_records_per_partition: int | None = _count(
        "RS",
        None,
        "Maximum number of rows that a task reads from one range of a queue. Longer ranges are split.",
    )
    pack_records: int = _count(
        "RS",
        10_000,
        "Short ranges share a task up to this number of rows. 0: one task for each range.",
        least=0,
    )
    fetch_batch_rows: int = _count("RS", 10_000, "Maximum number of rows in an Arrow batch.")
    fetch_batch_bytes: int = _count("RS", 8 << 20, "Approximate maximum size of an Arrow batch.", least=1024)
    pull_batch_size: int = _count(
        "RS", 4096, "Maximum number of messages in a pull. Brokers may return fewer."
    )
    # Timeouts and retries.
    request_timeout_ms: int = _count("RSW", 3000, "Timeout of a request to a server.")
    pull_timeout_ms: int = _count("RS", 10_000, "Timeout of a pull.")
    fetch_retries: int = _count(
        "RS",
        3,
        "Maximum number of retries of a request for offsets, and of a pull that fails or returns nothing.",
        name="fetchOffset.numRetries",
        least=0,
    )
    retry_interval_ms: int = _count(
        "RS",
        100,
        "Wait before the first such retry. It doubles up to 10 s.",
        name="fetchOffset.retryIntervalMs",
    )
    offset_poll_interval_ms: int = _count(
        "S",
        500,
        "Poll interval of an idle topic. With up to 4,096 queues, a message ends it early. New queues and topics are "
        "found by polling.",
    )
    # Behaviour of reads.
    fail_on_data_loss: bool = _flag(
        "RS", True, "Fail if brokers no longer hold the offsets to read. `false`: warn, and read the rest."
    )
    include_properties: bool = _flag("RS", True, "Include the `properties` map in the default schema.")
    body_decode_error: Literal["fail", "null", "replace"] = _option(
        "RS",
        values.choice("fail", "null", "replace"),
        "fail",
        "For a body that is not valid UTF-8, read as string: `fail`, `null`, or `replace` invalid bytes.",
    )
    body_format: Literal["raw", "json", "csv", "avro", "protobuf"] = _option(
        "RSW",
        values.choice("raw", "json", "csv", "avro", "protobuf"),
        "raw",
        "Format of bodies. The column `body` is a structure of their fields, see [typed bodies](#typed-bodies).",
    )
    body_schema: str = _option(
        "RS",
        values.text,
        "",
        "Fields of bodies, `id bigint, price double`, or for Avro the JSON of the schema that they were written with.",
    )
    infer_schema: bool = _flag(
        "RS",
        False,
        "Sample the fields of JSON and CSV from the latest 1,000 messages when the query is planned.",
    )
    mode: Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"] = _option(
        "RS",
        values.choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
        "PERMISSIVE",
        "For a body that cannot be decoded: null, and kept in `_corrupt_body`; its row dropped; or a failure.",
    )
    descriptor_file: bytes = _option(
        "RSW",
        values.descriptors,
        b"",
        "Descriptor set of Protobuf bodies, a file on the driver. Write it with `protoc --include_imports "
        "--descriptor_set_out=FILE`.",
        in_repr=False,
    )
    message_name: str = _option(
        "RSW",
        values.text,
        "",
        "Full name of the message of Protobuf bodies, `shop.Order`. Default: the only one of the descriptor file.",
    )
    sep: str = _option("RSW", values.character, ",", "Character between the fields of CSV.")
    schema_registry: str = _option(
        "RS",
        values.text,
        "",
        "Address of a schema registry. Bodies begin with the id of a schema, which is in the column `bodySchemaId`.",
    )
    commit_offsets: bool = _flag(
        "S",
        False,
        "Commit progress under `consumerGroup` for lag tools. Only `startingOffsets=group` reads it.",
    )
    pushdown: bool = _flag(
        "R",
        False,
        "Use filters of the query to read less. Needs `spark.sql.python.filterPushdown.enabled=true` and Spark 4.1.",
    )

    # Writes.
    producer_group: str = _option("W", values.text, "spark-rocketmq-sink", "Producer group of the writes.")
    idempotency_key: tuple[str, ...] = _option(
        "W",
        values.names,
        ("position",),
        "Source of `msgId`, so that a repeated row repeats its id: `position` (task and row number), names of columns "
        "that identify a row, or `none`.",
    )
    queue_selector: str = _option(
        "W",
        values.choice("roundRobin", "hash", "column"),
        "roundRobin",
        "`roundRobin`, `hash` (of `shardingKey`, else of `keys`), or `column` (`queueId`, with `brokerName` if given).",
    )
    send_batch_messages: int = _count("W", 256, "Maximum number of messages of one queue in a request.")
    # Brokers read larger requests within a shared budget.
    send_batch_bytes: int = _count(
        "W", 128 << 10, "Maximum size of a request. A larger message is sent alone."
    )
    max_in_flight: int = _count("W", 8, "Maximum number of unanswered requests of a task.")
    send_retries: int = _count("W", 2, "Maximum number of retries of a failed send.", least=0)
    send_timeout_ms: int = _count("W", 3000, "Timeout of a send, including its retries.")
    compress_threshold: int = _count(
        "W", 4096, "Minimum size of a body to compress. A compressed message is sent alone."
    )
    schema_id: int | None = _count(
        "W",
        None,
        "Id of a schema in a registry, written before each typed body as Confluent's header.",
        least=0,
    )
    create_topic: bool = _flag("W", False, "Create a missing topic with its first message.")
    ignore_extra_columns: bool = _flag(
        "W", False, "Drop columns that are not part of a message, instead of refusing them."
    )
    spark_properties: bool = _flag(
        "W",
        False,
        "Add the properties `SPARK_QUERY_ID`, `SPARK_BATCH_ID` and `SPARK_PARTITION_ID` to each message.",
    )

    @classmethod
    def parse(cls, given: Mapping[str, str], role: str | None = None) -> "Options":
        """Parse options for one role, or for any. Raises `OptionError` for the first error."""
        found: dict[str, Any] = {}
        spelt: dict[str, str] = {}
        for key, text in given.items():
            option = _find(key, role)
            if option is None:
                continue
            if option.name in found:
                raise OptionError(
                    f"options {spelt[option.name]!r} and {key!r} are the same: set only one of them"
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
            raise OptionError("option 'nameserver' is missing: add .option('nameserver', 'host:9876')")
        if not self.tls and any(
            (
                self.tls_ca_file,
                self.tls_cert_file,
                self.tls_key_file,
                self.tls_server_name,
                self.tls_skip_verify,
            )
        ):
            raise OptionError("options 'tls.…' have no effect without encryption: set 'tls' to true")
        if role in (BATCH, STREAM):
            sources = sum(map(bool, (self.topics, self.subscribe_pattern, self.assign)))
            if not sources:
                raise OptionError(
                    "option 'subscribe' is missing: add .option('subscribe', 'topic'), 'subscribePattern' or 'assign'"
                )
            if sources > 1:
                raise OptionError("set only one of 'subscribe', 'subscribePattern' and 'assign'")
        if role == BATCH and self.starting_offsets == LATEST:
            raise OptionError(
                "option 'startingOffsets': a batch read that starts at 'latest' is empty; use 'earliest'"
            )
        if self.max_partitions is not None and self.max_partitions < self.min_partitions:
            raise OptionError("option 'maxPartitions' is less than 'minPartitions'")
        if (
            self.max_offsets_per_trigger is not None
            and self.min_offsets_per_trigger is not None
            and self.max_offsets_per_trigger < self.min_offsets_per_trigger
        ):
            raise OptionError("option 'maxOffsetsPerTrigger' is less than 'minOffsetsPerTrigger'")


#: Options of Spark itself that a streaming sink receives.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})

#: Options of other connectors and of RocketMQ clients that are not supported.
NOT_YET: Mapping[str, str] = {
    "securityToken": "use accessKey and secretKey",
    "deliveryGuarantee": "delivery is at least once, with repeated ids",
    "txnAppId": "a repeated batch is written again",
    "txnVersion": "a repeated batch is written again",
    "waitStore": "sends always wait for the store",
}
#: Options of Spark's Kafka connector by their names here.
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
    """Return the field of an option, or `None` for an option of Spark."""
    if key.lower() in _SPARKS_OWN:
        return None
    if key.lower() in _REFUSED:
        name, reason = _REFUSED[key.lower()]
        raise OptionError(f"option {name!r} is not supported: {reason}")
    known = _SPELLINGS.get(key.lower())
    if known is None and (ours := KAFKAS.get(key.lower())):
        raise OptionError(f"option {key!r} belongs to Spark's Kafka source: use {ours!r}")
    if known is None:
        raise OptionError(_unknown(key, role))
    for each in known:
        if role is None or role in each.metadata["roles"]:
            return each
    right = " and ".join(_ROLES[each] for each in known[0].metadata["roles"])
    raise OptionError(f"option {spelling(known[0])!r} applies to {right}, not to {_ROLES[str(role)]}")


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
    """Return the options as the Markdown table of the documentation."""
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
