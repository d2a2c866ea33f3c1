"""Fakes for every test that asks for them."""

from collections.abc import Iterator

import pytest

from .fakes import Broker, NameServer, Network


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def brokers(network: Network) -> tuple[Broker, Broker]:
    return network.broker("broker-a"), network.broker("broker-b")


@pytest.fixture
def name_server(network: Network, brokers: tuple[Broker, Broker]) -> NameServer:
    return network.name_server(brokers, {"orders": 2})
