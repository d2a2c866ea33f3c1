"""RocketMQ without the JVM: producers, consumers, range reads and administration for any RocketMQ 4.x or 5.x cluster.

The public names and nothing else; each is imported when it is first used, so that `import rmqpy` is quick, starts no
thread and opens no socket.
"""

# `rmqpy.logging` is a module of this package.
import logging as _logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# A library says nothing on its own: what to do with its records is the application's choice.
_logging.getLogger(__name__).addHandler(_logging.NullHandler())

if TYPE_CHECKING:
    from rmqpy import errors as errors
    from rmqpy import logging as logging
    from rmqpy._native import ArrowBatch as ArrowBatch
    from rmqpy._native import SendFuture as SendFuture
    from rmqpy.admin.client import Admin as Admin
    from rmqpy.admin.client import AsyncAdmin as AsyncAdmin
    from rmqpy.client.catalog import Catalog as Catalog
    from rmqpy.client.consumer import PullConsumer as PullConsumer
    from rmqpy.client.consumer_async import AsyncPullConsumer as AsyncPullConsumer
    from rmqpy.client.group.offset_store import OffsetStore as OffsetStore
    from rmqpy.client.group.rebalance import Rebalance as Rebalance
    from rmqpy.client.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from rmqpy.client.interceptors import ProducerInterceptor as ProducerInterceptor
    from rmqpy.client.outcome import SendAttempt as SendAttempt
    from rmqpy.client.producer import Producer as Producer
    from rmqpy.client.producer_async import AsyncProducer as AsyncProducer
    from rmqpy.client.push.consume_result import BatchResult as BatchResult
    from rmqpy.client.push.consume_result import ConsumeResult as ConsumeResult
    from rmqpy.client.push.consume_result import Retry as Retry
    from rmqpy.client.push.consumer import PushConsumer as PushConsumer
    from rmqpy.client.push.consumer_async import AsyncPushConsumer as AsyncPushConsumer
    from rmqpy.client.push.handlers import ConsumerStats as ConsumerStats
    from rmqpy.client.push.reply import Reply as Reply
    from rmqpy.client.ranges import QueueRange as QueueRange
    from rmqpy.client.ranges import RangeReader as RangeReader
    from rmqpy.client.ranges import column_types as column_types
    from rmqpy.client.ranges import default_columns as default_columns
    from rmqpy.client.ranges import read_range as read_range
    from rmqpy.client.ranges import read_ranges as read_ranges
    from rmqpy.client.selectors import QueueSelector as QueueSelector
    from rmqpy.client.selectors import at_random as at_random
    from rmqpy.client.selectors import by_sharding_key as by_sharding_key
    from rmqpy.client.selectors import round_robin as round_robin
    from rmqpy.client.transactions import AsyncTransaction as AsyncTransaction
    from rmqpy.client.transactions import Transaction as Transaction
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

_HOMES = {
    "_native": ("ArrowBatch", "SendFuture"),
    "admin.client": ("Admin", "AsyncAdmin"),
    "client.catalog": ("Catalog",),
    "config.client": ("ClientConfig", "Credentials"),
    "config.tls": ("TLS",),
    "client.consumer": ("PullConsumer",),
    "client.consumer_async": ("AsyncPullConsumer",),
    "client.group.offset_store": ("OffsetStore",),
    "client.group.rebalance": ("Rebalance",),
    "client.interceptors": ("ConsumerInterceptor", "ProducerInterceptor"),
    "client.outcome": ("SendAttempt",),
    "client.producer": ("Producer",),
    "client.producer_async": ("AsyncProducer",),
    "client.push.consumer": ("PushConsumer",),
    "client.push.consumer_async": ("AsyncPushConsumer",),
    "client.push.handlers": ("ConsumerStats",),
    "client.push.consume_result": ("BatchResult", "ConsumeResult", "Retry"),
    "client.push.reply": ("Reply",),
    "client.ranges": (
        "QueueRange",
        "RangeReader",
        "column_types",
        "default_columns",
        "read_range",
        "read_ranges",
    ),
    "client.selectors": ("QueueSelector", "at_random", "by_sharding_key", "round_robin"),
    "client.transactions": ("AsyncTransaction", "Transaction"),
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

__all__ = sorted(["__version__", "errors", "logging", *_MODULES])


if not TYPE_CHECKING:
    # Unseen by type checkers, which would take any misspelt name for one that is found here.
    def __getattr__(name: str) -> Any:
        if name in ("errors", "logging"):
            return import_module(f"rmqpy.{name}")
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'rmqpy' has no attribute {name!r}")
        value = getattr(import_module(module), name)
        # The next use finds it without coming here.
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
