"""Clients of other protocols at the ports of our servers: the log names their protocol, once for each address."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from rmqpy.broker import Broker
from rmqpy.config.broker import read
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from waiting import until_async

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
    """Return the log lines about clients, once there are this many."""

    def written() -> list[str]:
        return [each.getMessage() for each in caplog.records if "which speaks" in each.getMessage()]

    return await until_async(written, lambda found: len(found) >= count)


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
async def test_broker_logs_foreign_protocols(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    said: bytes,
    named: str,
) -> None:
    monkeypatch.setattr("rmqpy.control.startup.service.REFUSALS_SECONDS", 0.02)
    settings = {"listenPort": "0", "storePathRootDir": str(tmp_path), "namesrvAddr": ""}
    async with Broker(read(settings).config) as broker:
        for _ in range(3):
            await asyncio.to_thread(call, broker.address, said)
        [line] = await lines(caplog, 1)
    assert named in line
    assert "127.0.0.1:" in line


async def test_name_server_logs_foreign_protocols(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rmqpy.namesrv.REFUSALS_SECONDS", 0.02)
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as server:
        await asyncio.to_thread(call, server.address, HTTP2)
        [line] = await lines(caplog, 1)
    assert "gRPC" in line
