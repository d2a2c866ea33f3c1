"""Clients of other protocols at the ports of our servers: the log names what they speak, once for each address."""

import asyncio
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rmqpy.broker import Broker
from rmqpy.config.broker import read
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)


def call(address: str, said: bytes) -> None:
    """Say something, and wait for the end of the connection."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as peer, suppress(ConnectionError):
        peer.sendall(said)
        while peer.recv(4096):
            pass


async def lines(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """What was written of clients, once there is so much."""
    deadline = time.monotonic() + 30
    while True:
        found = [each.getMessage() for each in caplog.records if "which speaks" in each.getMessage()]
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, "nothing was written"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (HTTP2, "gRPC"),
        (b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n", "httpPort"),
        (HELLO, "no certificate"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    ],
    ids=["gRPC", "HTTP", "TLS", "SSH"],
)
async def test_a_broker_names_what_a_client_of_another_protocol_speaks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    said: bytes,
    named: str,
) -> None:
    monkeypatch.setattr("rmqpy.control.startup.rounds.REFUSALS_SECONDS", 0.02)
    settings = {"listenPort": "0", "storePathRootDir": str(tmp_path), "namesrvAddr": ""}
    async with Broker(read(settings).config) as broker:
        for _ in range(3):
            await asyncio.to_thread(call, broker.address, said)
        [line] = await lines(caplog, 1)
    assert named in line
    assert "127.0.0.1:" in line


async def test_so_does_a_name_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rmqpy.namesrv.REFUSALS_SECONDS", 0.02)
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as server:
        await asyncio.to_thread(call, server.address, HTTP2)
        [line] = await lines(caplog, 1)
    assert "gRPC" in line
