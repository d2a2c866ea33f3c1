"""RocketMQ without the JVM: producers, consumers, range reads and administration for any RocketMQ 4.x or 5.x cluster.

Only public names. Each is imported on first use: `import rmqpy` is quick, starts no thread and opens no socket.
"""

# `rmqpy.logging` is a module of this package.
import logging as _logging
from importlib import import_module

# A library logs nothing by default: the application configures its logger.
_logging.getLogger(__name__).addHandler(_logging.NullHandler())

# Type checkers assume that it is true. Importing `typing` for its own would take a third of the time of this import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from rmqpy import errors as errors
    from rmqpy import logging as logging
    from rmqpy._native import ArrowBatch as ArrowBatch
    from rmqpy._native import SendFuture as SendFuture
    from rmqpy._native import __version__ as __version__
    from rmqpy.admin.client import Admin as Admin
    from rmqpy.admin.client import AsyncAdmin as AsyncAdmin
    from rmqpy.client.codecs.codec import Codec as Codec
    from rmqpy.client.codecs.json import JsonCodec as JsonCodec
    from rmqpy.client.codecs.parameters import Property as Property
    from rmqpy.client.consume_result import BatchResult as BatchResult
    from rmqpy.client.consume_result import ConsumeResult as ConsumeResult
    from rmqpy.client.consume_result import Reply as Reply
    from rmqpy.client.consume_result import Retry as Retry
    from rmqpy.client.group.offset_store import OffsetStore as OffsetStore
    from rmqpy.client.group.rebalance import Rebalance as Rebalance
    from rmqpy.client.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from rmqpy.client.interceptors import ProducerInterceptor as ProducerInterceptor
    from rmqpy.client.outcome import SendAttempt as SendAttempt
    from rmqpy.client.producer.producer import Producer as Producer
    from rmqpy.client.producer.producer_async import AsyncProducer as AsyncProducer
    from rmqpy.client.producer.selectors import QueueSelector as QueueSelector
    from rmqpy.client.producer.selectors import at_random as at_random
    from rmqpy.client.producer.selectors import by_sharding_key as by_sharding_key
    from rmqpy.client.producer.selectors import round_robin as round_robin
    from rmqpy.client.producer.transactions.transaction import AsyncTransaction as AsyncTransaction
    from rmqpy.client.producer.transactions.transaction import Transaction as Transaction
    from rmqpy.client.producer.typed import AsyncTypedTopic as AsyncTypedTopic
    from rmqpy.client.producer.typed import TypedTopic as TypedTopic
    from rmqpy.client.pull.catalog import Catalog as Catalog
    from rmqpy.client.pull.consumer import PullConsumer as PullConsumer
    from rmqpy.client.pull.consumer_async import AsyncPullConsumer as AsyncPullConsumer
    from rmqpy.client.pull.ranges import QueueRange as QueueRange
    from rmqpy.client.pull.ranges import RangeReader as RangeReader
    from rmqpy.client.pull.ranges import column_types as column_types
    from rmqpy.client.pull.ranges import default_columns as default_columns
    from rmqpy.client.pull.ranges import read_range as read_range
    from rmqpy.client.pull.ranges import read_ranges as read_ranges
    from rmqpy.client.pull.ranges import read_values as read_values
    from rmqpy.client.push.consumer import PushConsumer as PushConsumer
    from rmqpy.client.push.consumer_async import AsyncPushConsumer as AsyncPushConsumer
    from rmqpy.client.push.handlers import ConsumerStats as ConsumerStats
    from rmqpy.client.simple.consumer import SimpleConsumer as SimpleConsumer
    from rmqpy.client.simple.consumer_async import AsyncSimpleConsumer as AsyncSimpleConsumer
    from rmqpy.config.client import ClientConfig as ClientConfig
    from rmqpy.config.client import Credentials as Credentials
    from rmqpy.config.tls import TLS as TLS
    from rmqpy.errors import RocketMQError as RocketMQError
    from rmqpy.message import Message as Message
    from rmqpy.message import MessageFields as MessageFields
    from rmqpy.message import MessageQueue as MessageQueue
    from rmqpy.message import ReceivedMessage as ReceivedMessage
    from rmqpy.message import SendResult as SendResult
    from rmqpy.message import SendStatus as SendStatus
    from rmqpy.message import Sql as Sql
    from rmqpy.message import TransactionState as TransactionState
    from rmqpy.message import sql as sql
    from rmqpy.tables.topic_read import TopicRead as TopicRead
    from rmqpy.tables.topic_read import read_topic as read_topic

_HOMES = {
    "_native": ("ArrowBatch", "SendFuture", "__version__"),
    "admin.client": ("Admin", "AsyncAdmin"),
    "client.pull.catalog": ("Catalog",),
    "client.codecs.codec": ("Codec",),
    "client.codecs.json": ("JsonCodec",),
    "client.codecs.parameters": ("Property",),
    "client.producer.typed": ("AsyncTypedTopic", "TypedTopic"),
    "config.client": ("ClientConfig", "Credentials"),
    "config.tls": ("TLS",),
    "client.pull.consumer": ("PullConsumer",),
    "client.simple.consumer": ("SimpleConsumer",),
    "client.simple.consumer_async": ("AsyncSimpleConsumer",),
    "client.pull.consumer_async": ("AsyncPullConsumer",),
    "client.group.offset_store": ("OffsetStore",),
    "client.group.rebalance": ("Rebalance",),
    "client.interceptors": ("ConsumerInterceptor", "ProducerInterceptor"),
    "client.outcome": ("SendAttempt",),
    "client.producer.producer": ("Producer",),
    "client.producer.producer_async": ("AsyncProducer",),
    "client.push.consumer": ("PushConsumer",),
    "client.push.consumer_async": ("AsyncPushConsumer",),
    "client.push.handlers": ("ConsumerStats",),
    "client.consume_result": ("BatchResult", "ConsumeResult", "Reply", "Retry"),
    "client.pull.ranges": (
        "QueueRange",
        "RangeReader",
        "column_types",
        "default_columns",
        "read_range",
        "read_ranges",
        "read_values",
    ),
    "client.producer.selectors": ("QueueSelector", "at_random", "by_sharding_key", "round_robin"),
    "client.producer.transactions.transaction": ("AsyncTransaction", "Transaction"),
    "tables.topic_read": ("TopicRead", "read_topic"),
    "errors": ("RocketMQError",),
    "message": (
        "Message",
        "MessageFields",
        "MessageQueue",
        "ReceivedMessage",
        "SendResult",
        "SendStatus",
        "Sql",
        "TransactionState",
        "sql",
    ),
}
_MODULES = {name: f"rmqpy.{module}" for module, names in _HOMES.items() for name in names}

__all__ = sorted(["errors", "logging", *_MODULES])


if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any misspelt name.
    def __getattr__(name: str) -> object:
        if name in ("errors", "logging"):
            return import_module(f"rmqpy.{name}")
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'rmqpy' has no attribute {name!r}")
        value = getattr(import_module(module), name)
        # Later uses bypass this function.
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
