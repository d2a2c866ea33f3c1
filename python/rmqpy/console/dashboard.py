"""The console on its own: a process that serves it for any cluster, Apache's included.

Owns the HTTP server. Threads: one event loop, the one that called `start`.
"""

from rmqpy.config.addresses import HostPort
from rmqpy.config.client import ClientConfig
from rmqpy.console.guard import is_loopback
from rmqpy.console.mount import console
from rmqpy.errors import ConfigError
from rmqpy.monitor.http import HttpServer
from rmqpy.monitor.pages import Page
from rmqpy.service import Service


class Dashboard(Service):
    """The console of one cluster.

    ::

        async with Dashboard(ClientConfig(namesrv="10.0.0.1:9876"), port=8082) as dashboard:
            print(f"http://{dashboard.address}/")

    Port 0 takes a free one. Raises `ConfigError` for a host that other machines could connect to: there is no access
    control yet.
    """

    def __init__(
        self, config: ClientConfig, *, host: str = "127.0.0.1", port: int = 8082, allow_changes: bool = False
    ) -> None:
        if not is_loopback(host):
            raise ConfigError(
                f"the console would be open to everybody who can connect to {host}: the console has no login yet",
                hint=f"run it on the machine you look from, or come through a tunnel: ssh -L {port}:127.0.0.1:{port}",
            )
        self._host = host
        self._port = port
        self._bound: tuple[str, int] | None = None
        self._http = HttpServer({"/livez": _alive}, console(config, allow_changes=allow_changes))

    @property
    def address(self) -> str:
        """`host:port`, where it listens once it has started."""
        return str(HostPort(*(self._bound or (self._host, self._port))))

    async def start(self) -> None:
        """Listen. Raises `OSError` for a port in use. No server is asked before somebody looks."""
        self._bound = await self._http.start(self._host, self._port)

    async def stop(self) -> None:
        """Stop listening, close the connections. Idempotent."""
        await self._http.stop()


async def _alive(_accept: str) -> Page:
    return Page("ok\n")
