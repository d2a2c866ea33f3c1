"""Fakes, and a live server with a topic, for every test that asks for them."""

import zlib
from collections.abc import Iterator

import pytest

from rmqpy import testing
from rmqpy.server import Standalone

from .fakes import Brokers, NameServer, Network
from .live import make_topic


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def brokers(network: Network) -> Brokers:
    return network.broker("broker-a"), network.broker("broker-b")


@pytest.fixture
def name_server(network: Network, brokers: Brokers) -> NameServer:
    return network.name_server(brokers, {"orders": 2})


@pytest.fixture(scope="package")
def server() -> Iterator[Standalone]:
    with testing.broker() as server:
        yield server


@pytest.fixture
def topic(request: pytest.FixtureRequest, server: Standalone) -> str:
    """A topic of four queues that every name server knows."""
    name: str = request.node.name
    name = name.replace("[", "-").replace("]", "").replace(" ", "-")
    # Names of tests that begin alike are told apart by their checksum.
    name = f"{name[:50]}-{zlib.crc32(name.encode()):08x}"
    make_topic(server, name)
    return name
