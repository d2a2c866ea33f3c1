"""Peers: Kafka, NATS JetStream and Redis streams, compared with rmqpy (`python -m benchmarks.peers`).

Each broker is loaded by its own tool. The package has one module for each broker and its tool.
"""

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.nats import Nats
from benchmarks.peers.redis import Redis
from benchmarks.peers.system import OtherSystem

__all__ = ["OTHER_SYSTEMS", "Kafka", "Nats", "OtherSystem", "Redis"]

OTHER_SYSTEMS: tuple[type[OtherSystem], ...] = (Kafka, Nats, Redis)
