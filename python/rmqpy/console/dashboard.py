"""The console on its own: a process that serves it for any cluster, Apache's included.

Owns the HTTP server. Threads: one event loop, the one that called `start`.
"""

from typing import Literal

from rmqpy.config.addresses import HostPort, listening
from rmqpy.config.client import ClientConfig
from rmqpy.console.mount import console
from rmqpy.monitor.http import HttpServer, claim
from rmqpy.monitor.pages import Page
from rmqpy.service import Service


class Dashboard(Service):
    """The console of one cluster.

    ::

        async with Dashboard(ClientConfig(namesrv="10.0.0.1:9876"), port=8082) as dashboard:
            print(f"http://{dashboard.address}/")

    Port 0 takes a free one. At a host that other machines can connect to, and with `login` everywhere, it serves only
    those who have logged in as a user of the cluster. `bodies`: what users that are no super users see of messages.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        host: str = "127.0.0.1",
        port: int = 8082,
        allow_changes: bool = False,
        login: bool = False,
        bodies: Literal["shown", "masked", "hidden"] = "shown",
    ) -> None:
        self._host = host
        self._port = port
        self._bound: tuple[str, int] | None = None
        self._http = HttpServer(
            {"/livez": _alive}, console(config, allow_changes=allow_changes, needs_login=login, bodies=bodies)
        )

    @property
    def address(self) -> str:
        """`host:port`, where it listens once it has started."""
        return str(HostPort(*(self._bound or (self._host, self._port))))

    async def start(self) -> None:
        """Listen. Raises `AddressError` for a port in use. No server is asked before somebody looks."""
        with listening("--port", self._host, self._port):
            self._bound = self._http.start(await claim(self._host, self._port))

    async def stop(self) -> None:
        """Stop listening, close the connections. Idempotent."""
        await self._http.stop()


async def _alive(_accept: str) -> Page:
    return Page("ok\n")
