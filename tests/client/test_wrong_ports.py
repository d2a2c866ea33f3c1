"""Clients with the port of another server: they report what answers there."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.server import Standalone

Answering = Callable[[bytes], str]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """A server that answers any input with some bytes, and hangs up."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(listener: socket.socket, answer: bytes) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

    def start(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threads.append(threading.Thread(target=serve, args=(listener, answer)))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "HTTP,"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS,"),
        (b"\x16\x03\x01\x00\x7a\x02\x00\x00\x76", "TLS,"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64" + bytes(12), "HTTP/2,"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", "HTTP/2,"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH,"),
    ],
)
def test_server_at_a_wrong_port_is_named(answering: Answering, answer: bytes, name: str) -> None:
    address = answering(answer)
    config = rmqpy.ClientConfig(namesrv=address, request_timeout=10.0)
    with rmqpy.Admin(config) as admin, pytest.raises(errors.RocketMQError) as raised:
        admin.topics()
    text = str(raised.value)
    for told in (address, f"it answers {name} not RocketMQ", "9876", "10911"):
        assert told in text
    with rmqpy.Producer(config) as producer, pytest.raises(errors.RocketMQError) as raised:
        producer.send("orders", b"x", timeout=10)
    assert f"it answers {name} not RocketMQ" in str(raised.value)


def test_broker_used_as_a_name_server_is_named(server: Standalone) -> None:
    told = f"{server.broker} is not a name server, probably a broker: .*9876"
    with rmqpy.Admin(server.broker) as admin, pytest.raises(errors.Unsupported, match=told):
        admin.topics()
    with rmqpy.Producer(server.broker) as producer, pytest.raises(errors.Unsupported, match=told):
        producer.send("orders", "x")
