"""Messages and stubs of the gRPC interface, from the official Python client, for calls that no client makes.

The package itself is not imported: it reconfigures logging.
"""

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

_spec = find_spec("rocketmq") if "rocketmq" not in sys.modules else None
if _spec is not None and _spec.submodule_search_locations is not None:
    _package = types.ModuleType("rocketmq")
    _package.__path__ = list(_spec.submodule_search_locations)
    sys.modules["rocketmq"] = _package

import grpc  # noqa: E402
from rocketmq.grpc_protocol import definition_pb2 as definitions  # noqa: E402
from rocketmq.grpc_protocol import service_pb2 as services  # noqa: E402
from rocketmq.grpc_protocol.service_pb2_grpc import MessagingServiceStub  # noqa: E402

__all__ = ["METADATA", "definitions", "grpc", "named", "queue", "services", "stub", "telemetry"]

METADATA = (("x-mq-client-id", "test-client"), ("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.1.2"))


@contextmanager
def stub(address: str) -> Iterator[Any]:
    """A stub on a connection of its own."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield MessagingServiceStub(channel)


def named(name: str) -> Any:
    return definitions.Resource(name=name)


def queue(topic: str, queue_id: int = 0) -> Any:
    return definitions.MessageQueue(topic=named(topic), id=queue_id)


def telemetry(calls: Any, settings: Any) -> Any:
    """The first reply to these settings."""
    command = services.TelemetryCommand(settings=settings)
    return next(calls.Telemetry(iter([command]), metadata=METADATA, timeout=10))
