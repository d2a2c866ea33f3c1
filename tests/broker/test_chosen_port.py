"""A port that the system chooses for a broker."""

import socket

import pytest

from rmqpy.config.broker import BrokerConfig
from rmqpy.config.network import VIP_BELOW
from rmqpy.control.addresses import Addresses

HOST = "127.0.0.1"


def test_chosen_port_is_held_until_the_broker_listens() -> None:
    config = BrokerConfig(listen_port=0)
    addresses = Addresses(config)
    addresses.choose_port(config)
    ports = (addresses.port, addresses.port - VIP_BELOW)
    for port in ports:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((HOST, port))
    with socket.create_server((HOST, ports[0])), socket.create_server((HOST, ports[1])):
        addresses.release_port()
    for port in ports:
        with socket.socket() as other:
            other.bind((HOST, port))
    addresses.choose_port(config)
    assert addresses.port == ports[0], "it is the same when the broker starts again"
