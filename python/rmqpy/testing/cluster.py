"""Test cluster: name servers and brokers on free ports in a temporary folder, on an event loop in a separate thread.

Owns what it starts: leaving stops every server and removes the folder. A stopped server can be started again; it
keeps its port and, for a broker, its messages.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from rmqpy._native import HandClock
from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.server import Setting, Standalone, Thread, written
from rmqpy.service import Service

#: Settings for small store files: a test needs no gigabyte, and should reach the end of a segment.
SMALL: Final[Mapping[str, Any]] = {
    "mappedFileSizeCommitLog": 16 << 20,
    "commitLogRingBytes": 20 << 20,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 50_000,
    "mappedFileSizeTimerLog": 1 << 20,
}


@contextmanager
def broker(*, clock: HandClock | None = None, **settings: Setting) -> Iterator[Standalone]:
    """A name server and a broker for one test. `settings` are keys of broker.conf.

    With a `clock`, timed messages use that clock, and none expires::

        clock = rmqpy.testing.HandClock()
        with rmqpy.testing.broker(clock=clock) as server, rmqpy.Producer(server.namesrv) as producer:
            producer.send("reminders", b"water the plants", deliver_after=timedelta(days=1))
            clock.advance(86_400)
    """
    for_ever: Mapping[str, Setting] = {} if clock is None else {"fileReservedTime": 1_000_000}
    with (
        tempfile.TemporaryDirectory(prefix="rmqpy-") as folder,
        Standalone(
            folder, namesrv_port=0, broker_port=0, clock=clock, **{**SMALL, **for_ever, **settings}
        ) as server,
    ):
        yield server


class Cluster:
    """Several of each, which can be stopped and started one by one.

    ::

        with Cluster(name_servers=2, brokers=["broker-a", "broker-b"]) as cluster:
            cluster.stop("broker-a")
            ...
            cluster.start("broker-a")
    """

    def __init__(
        self,
        *,
        name_servers: int = 1,
        brokers: Sequence[str] = ("broker-a",),
        **settings: Setting,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="rmqpy-")
        #: The folder of every server: `name-server-0`, `broker-a`, ….
        self.folder = Path(self._temporary.name)
        self._members = _Members(
            self.folder,
            [f"name-server-{index}" for index in range(name_servers)],
            brokers,
            {**SMALL, **settings},
        )
        self._thread = Thread(self._members)

    @property
    def namesrv(self) -> str:
        """Addresses of all name servers, running or not, for clients."""
        return self._members.namesrv

    def address(self, name: str) -> str:
        """The address of the server `broker-a` or `name-server-0`, running or not."""
        return self._members.address(name)

    def stop(self, name: str) -> None:
        """Stop one server gracefully."""
        self._thread.call(self._members.stop_one(name))

    def start(self, name: str) -> None:
        """Start one server again, with its port and folder."""
        self._thread.call(self._members.start_one(name))

    def __enter__(self) -> Self:
        try:
            self._thread.start()
        except BaseException:
            self._temporary.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.stop()
        finally:
            self._temporary.cleanup()


class _Members(Service):
    """The servers of a cluster, on their loop: name servers start first and stop last."""

    def __init__(
        self,
        folder: Path,
        name_servers: Sequence[str],
        brokers: Sequence[str],
        settings: Mapping[str, Setting],
    ) -> None:
        self._folder = folder
        self._name_servers = name_servers
        self._brokers = brokers
        self._settings = settings
        #: Ports from the first start, kept for later ones.
        self._ports: dict[str, int] = {}
        self._running: dict[str, NameServer | Broker] = {}

    @property
    def namesrv(self) -> str:
        return ";".join(self.address(name) for name in self._name_servers)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"

    async def start(self) -> None:
        for name in (*self._name_servers, *self._brokers):
            await self.start_one(name)

    async def stop(self) -> None:
        while self._running:
            await self.stop_one(next(reversed(self._running)))

    async def start_one(self, name: str) -> None:
        server = self._name_server(name) if name in self._name_servers else self._broker(name)
        try:
            await server.start()
        except BaseException:
            await server.stop()
            raise
        self._running[name] = server
        self._ports[name] = int(server.address.rpartition(":")[2])

    async def stop_one(self, name: str) -> None:
        await self._running.pop(name).stop()

    def _name_server(self, name: str) -> NameServer:
        folder = self._folder / name
        return NameServer(
            NameServerConfig(
                listen_port=self._ports.get(name, 0),
                kv_path=str(folder / "kvConfig.json"),
                store_path=str(folder / "namesrv.properties"),
            )
        )

    def _broker(self, name: str) -> Broker:
        settings: dict[str, Setting] = {
            "brokerName": name,
            "namesrvAddr": self.namesrv,
            "listenPort": self._ports.get(name, 0),
            "storePathRootDir": str(self._folder / name),
            "enablePropertyFilter": "true",
            "recallMessageEnable": "true",
        }
        return Broker(broker_config.read(written({**settings, **self._settings})).config)
