"""Name server and broker in one process, until a signal.

Owns the order of start and stop. One asyncio loop runs both servers: the caller's (`async with`), a thread's
(`with`), or the main thread's (`serve`). Only `serve` installs signal handlers; otherwise the process stays as it
was, except that its descriptor limit is raised to the maximum.
"""

import asyncio
import contextlib
import ctypes
import dataclasses
import gc
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from rmqpy.broker import Broker
from rmqpy.clock import Clock
from rmqpy.config import broker as broker_config
from rmqpy.config import folders, home
from rmqpy.config import namesrv as namesrv_config
from rmqpy.config.access import Secret
from rmqpy.config.keys import NO_HTTP
from rmqpy.config.server_tls import TlsConfig, with_file
from rmqpy.config.store import StoreConfig
from rmqpy.errors import ClosedError
from rmqpy.namesrv import NameServer
from rmqpy.service import Service, notify_supervisor

log = logging.getLogger(__name__)

R = TypeVar("R")

#: The value of a key of broker.conf or namesrv.conf, in Python types.
Setting = str | int | bool


class Standalone(Service):
    """A name server and a broker that serve within a `with` block and leave nothing behind.

    ::

        with Standalone("data") as server, rmqpy.Producer(server.namesrv) as producer:
            producer.send("orders", b"first")

    Port 0 picks a free one, and so does `takes_any_http_port` if `http_port` is in use. `progress` is called during a
    long recovery. The broker uses `clock` instead of the machine's, see `rmqpy.testing.HandClock`. `settings` are
    keys of broker.conf and namesrv.conf: `Standalone(flushDiskType="SYNC_FLUSH")`. Raises `StoreError` if another
    process serves the same folder, `ConfigError` if `data_dir` is the store of a broker, and `OSError` if a port is
    in use.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        namesrv_port: int = 9876,
        broker_port: int = 10911,
        http_port: int = NO_HTTP,
        takes_any_http_port: bool = False,
        progress: Callable[[str], None] = log.info,
        clock: Clock | None = None,
        **settings: Setting,
    ) -> None:
        self.data_dir = Path(data_dir) if data_dir is not None else default_data_dir()
        #: Warnings about the settings, one line each.
        self.warnings: list[str] = []
        self._host = host
        self._namesrv_port = namesrv_port
        self._broker_port = broker_port
        self._http_port = http_port
        self._takes_any_http_port = takes_any_http_port
        self._progress = progress
        self._clock = clock
        self._settings = settings
        self._name_server: NameServer | None = None
        self._broker: Broker | None = None
        self._thread: Thread | None = None

    @property
    def namesrv(self) -> str:
        """The address of the name server, for clients. Raises `ClosedError` unless serving."""
        return self._serving(self._name_server).address

    @property
    def broker(self) -> str:
        """Address of the broker. Raises `ClosedError` unless serving."""
        return self._serving(self._broker).address

    @property
    def http(self) -> str | None:
        """Address of the console, /metrics, /healthz and /readyz; `None` if HTTP is off. Raises `ClosedError`
        unless serving."""
        return self._serving(self._broker).http_address

    @property
    def grpc(self) -> str | None:
        """Address for 5.x clients; `None` if gRPC is off. Raises `ClosedError` unless serving."""
        return self._serving(self._broker).grpc_address

    async def start(self) -> None:
        """Start the name server, recover the store, start the broker, register it."""
        # It signs the broker's requests to the name server, if no user is configured for them.
        inner = Secret("rmqpy-standalone", secrets.token_urlsafe(32))
        folders.check_data_folder(self.data_dir, StoreConfig.read(self._entries("")))
        names = namesrv_config.read(self._name_server_entries()).config
        self._name_server = NameServer(
            dataclasses.replace(names, access=names.access.with_process_user(inner))
        )
        try:
            await self._name_server.start()
            config, self.warnings = broker_config.read(self._entries(self._name_server.address))
            self._broker = Broker(
                dataclasses.replace(config, access=config.access.with_process_user(inner)),
                progress=self._progress,
                clock=self._clock,
                takes_any_http_port=self._takes_any_http_port,
            )
            await self._broker.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop in reverse order: the broker unregisters and closes the store. Idempotent."""
        broker, self._broker = self._broker, None
        name_server, self._name_server = self._name_server, None
        try:
            if broker is not None:
                await broker.stop()
        finally:
            if name_server is not None:
                await name_server.stop()

    def __enter__(self) -> Self:
        self._thread = Thread(self)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None

    def _name_server_entries(self) -> dict[str, str]:
        """Return the name server's settings as entries of a namesrv.conf; the caller's settings have precedence."""
        folder = self.data_dir / folders.NAME_SERVER
        return {
            "listenPort": str(self._namesrv_port),
            "bindAddress": self._host,
            "kvConfigPath": str(folder / "kvConfig.json"),
            "configStorePath": str(folder / "namesrv.properties"),
            # The same users, in separate tables.
            "authConfigPath": str(folder / "auth"),
        } | namesrv_config.for_standalone(self._tls())

    def _entries(self, namesrv: str) -> dict[str, str]:
        """Return the broker's settings as entries of a broker.conf; the caller's settings have precedence."""
        names_alone = namesrv_config.NameServerConfig.served() - broker_config.served()
        given = {wire: value for wire, value in self._tls().items() if wire not in names_alone}
        return {
            "brokerName": "broker-a",
            "namesrvAddr": namesrv,
            "bindAddress": self._host,
            "listenPort": str(self._broker_port),
            "httpPort": str(self._http_port),
            "storePathRootDir": str(self.data_dir / folders.STORE),
            "enablePropertyFilter": "true",
            "recallMessageEnable": "true",
            # A shared machine may have a fuller disk than a dedicated one.
            "diskSpaceWarningLevelRatio": "100",
        } | given

    def _tls(self) -> dict[str, str]:
        """Return the TLS settings, which both servers also use for connections to each other."""
        given = with_file(written(self._settings))
        tls = TlsConfig.read(given)
        if tls.is_enforced and "tls.enable" not in given:
            given |= {"tls.enable": "true"}
            if tls.cert_path and not tls.client_trust_path:
                # The process trusts its own certificate.
                given |= {"tls.client.trustCertPath": tls.trust_path or tls.cert_path}
        return given

    @staticmethod
    def _serving(server: R | None) -> R:
        if server is None:
            raise ClosedError("the server is not running", hint="enter it first: with Standalone() as server")
        return server


class Thread:
    """A server on an event loop in a separate thread, for callers without a loop."""

    def __init__(self, server: Service) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="rmqpy-server", daemon=True)

    def start(self) -> None:
        """Start the server. Raises errors of its `start`; nothing runs then."""
        self._thread.start()
        try:
            self.call(self._server.start())
        except BaseException:
            self.stop()
            raise

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the server's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        """Stop the server and end the thread."""
        try:
            self.call(self._server.stop())
        finally:
            self._loop.call_soon_threadsafe(self._is_over.set)
            self._thread.join()

    def _run(self) -> None:
        # A runner also ends remaining tasks, and the threads of the executor.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._is_over.wait())


async def serve(server: Service, announce: Callable[[], None]) -> None:
    """Start, announce, and serve until SIGINT or SIGTERM; then stop in order.

    A second signal ends the process immediately: unflushed data is lost as in a crash, and the abort file makes the
    next start recover. For the main thread.
    """
    _have_few_arenas()
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()

    def interrupted(number: signal.Signals) -> None:
        if told_to_stop.is_set():
            os._exit(128 + number)
        log.info("stopping: received %s", number.name)
        told_to_stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, interrupted, number)
    try:
        await server.start()
        _have_short_pauses()
        trimming = loop.create_task(_return_memory())
        try:
            if not told_to_stop.is_set():
                announce()
                notify_supervisor("READY=1")
            await told_to_stop.wait()
        finally:
            told_to_stop.set()
            trimming.cancel()
            notify_supervisor("STOPPING=1")
            await server.stop()
            log.info("stopped")
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


#: The longest time that a thread keeps the interpreter while the event loop wants it. Python's default is 5 ms, and
#: the loop may wait behind several threads; with much less, threads switch too often.
_SWITCH_INTERVAL_S: Final = 0.0005


def _have_short_pauses() -> None:
    """Shorten the pauses of the event loop in a process that only serves, once it has started."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # The collector ignores objects that exist now; scanning them takes some ten milliseconds each time.
    gc.freeze()


#: The `mallopt` parameter of glibc for the number of arenas, and its value for a process that only serves.
_M_ARENA_MAX: Final = -8
_ARENAS_MAX: Final = 2


def _have_few_arenas() -> None:
    """Limit the arenas of the C library's allocator, each of which keeps the peak memory of a flood of requests.

    By default there are up to eight per core, but the dozen threads of a server rarely allocate concurrently. The
    operator's setting has precedence; other C libraries have no arenas.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and "arena_max" not in os.environ.get("GLIBC_TUNABLES", ""):
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS_MAX)


#: The interval of looking at the processor time of this process, and the time in it from which on it is not idle.
_IDLE_LOOK_S: Final = 10.0
_IDLE_CPU_S: Final = 0.5
#: Idle intervals after which memory is returned: until then indexes and buffers have given up theirs.
_IDLE_INTERVALS: Final = 3


async def _return_memory() -> None:
    """Return memory to the system once after each load: the C library keeps what a load has freed.

    Each trim holds the allocator for some milliseconds, so a busy process does without. Other C libraries than glibc
    have no such function.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    idle, used = 0, time.process_time()
    while trim is not None:
        await asyncio.sleep(_IDLE_LOOK_S)
        before, used = used, time.process_time()
        idle = idle + 1 if used - before < _IDLE_CPU_S else 0
        if idle == _IDLE_INTERVALS:
            trim(0)


def default_data_dir() -> Path:
    """Return `$RMQPY_DATA_DIR`, or the desktop's folder for user data. Raises `ConfigError` if the user has none."""
    if given := os.environ.get("RMQPY_DATA_DIR"):
        return Path(given)
    return (
        Path(os.environ.get("XDG_DATA_HOME") or home.folder("the data folder") / ".local" / "share") / "rmqpy"
    )


def written(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Format settings as in a broker.conf."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }
