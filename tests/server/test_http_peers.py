"""Peers that occupy the HTTP port: none of them blocks others, and health pages have separate slots."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from rmqpy.config.namesrv import NameServerConfig
from rmqpy.monitor import application
from rmqpy.monitor.http import HttpServer, claim
from rmqpy.monitor.pages import Page
from rmqpy.namesrv import NameServer
from rmqpy.server import Standalone, Thread
from rmqpy.service import Service
from rmqpy.testing import broker

HEALTH = ("/livez", "/healthz", "/readyz")


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with broker(httpPort=0) as server:
        yield server


def connected(address: str | None, said: bytes = b"") -> socket.socket:
    assert address is not None
    host, port = address.split(":")
    peer = socket.create_connection((host, int(port)), timeout=30)
    peer.sendall(said)
    return peer


def status(address: str | None, path: str, headers: dict[str, str] | None = None) -> int:
    assert address is not None
    connection = HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    "said", [b"", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"], ids=["silent", "half"]
)
def test_idle_peers_block_no_requests(server: Standalone, said: bytes) -> None:
    with ExitStack() as stack:
        peers = [
            stack.enter_context(connected(server.http, said)) for _ in range(4 * application.WAITING_MAX)
        ]
        for path in (*HEALTH, "/metrics", "/"):
            assert status(server.http, path) == 200
        # The first ones were disconnected to make room.
        with suppress(ConnectionError):
            assert peers[0].recv(1) == b""


class Slow(Service):
    """A server with a page that waits for a signal."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.asked = threading.Semaphore(0)
        self.address = ""
        self._http = HttpServer({"/metrics": self._page, "/livez": self._alive})

    async def _page(self, _accept: str) -> Page:
        self.asked.release()
        await asyncio.to_thread(self.may.wait)
        return Page("made\n")

    async def _alive(self, _accept: str) -> Page:
        return Page("ok\n")

    async def start(self) -> None:
        self.address = "{}:{}".format(*self._http.start(await claim("127.0.0.1", 0)))

    async def stop(self) -> None:
        await self._http.stop()


def test_slow_requests_leave_slots_for_health_pages() -> None:
    thread = Thread(slow := Slow())
    thread.start()
    try:
        with ExitStack() as stack:
            stack.callback(slow.may.set)
            for _ in range(application.REQUESTS_MAX):
                stack.enter_context(
                    connected(slow.address, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                )
                assert slow.asked.acquire(timeout=30)
            assert status(slow.address, "/livez") == 200
            # One more is refused immediately, instead of waiting.
            assert status(slow.address, "/metrics") == 503
    finally:
        thread.stop()


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 200),
        ({"Host": "localhost:1234"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_pages_of_other_sites_read_no_metrics(
    server: Standalone, headers: dict[str, str], expected: int
) -> None:
    assert status(server.http, "/metrics", headers) == expected
    # Supervisors ask by any name.
    for path in HEALTH:
        assert status(server.http, path, headers) == 200


def test_name_server_refuses_foreign_hosts(tmp_path: Path) -> None:
    server = NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="", http_port=0))
    thread = Thread(server)
    thread.start()
    try:
        assert status(server.http_address, "/metrics", {"Host": "evil.example"}) == 421
        assert status(server.http_address, "/metrics") == 200
    finally:
        thread.stop()
