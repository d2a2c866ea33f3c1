"""Standalone console: a process that serves it for any cluster, including Apache's.

Owns the HTTP server. Threads: the event loop that called `start`.
"""

from typing import Literal

from rmqpy.alerts.rules import AlertConfig
from rmqpy.alerts.watch import AlertWatch
from rmqpy.config.addresses import HostPort, listening
from rmqpy.config.client import ClientConfig
from rmqpy.config.telemetry import check_url
from rmqpy.console.mount import console
from rmqpy.monitor.http import HttpServer, claim
from rmqpy.monitor.pages import Page
from rmqpy.service import Service


class Dashboard(Service):
    """The console of one cluster.

    ::

        async with Dashboard(ClientConfig(namesrv="10.0.0.1:9876"), port=8082) as dashboard:
            print(f"http://{dashboard.address}/")

    Port 0 picks a free one. On a host other than loopback, and with `login` everywhere, users must log in as a user
    of the cluster. `bodies`: visibility of message bodies for users other than super users. `alerts`: rules and
    receivers, watched while it serves. `prometheus`: its base URL, to which charts link for longer times. Raises
    `ConfigError` if it is not a URL.
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
        alerts: AlertConfig | None = None,
        prometheus: str = "",
    ) -> None:
        check_url("prometheus", prometheus, "Prometheus, such as http://10.0.0.9:9090")
        self._host = host
        self._port = port
        self._bound: tuple[str, int] | None = None
        self._alerts = None if alerts is None else AlertWatch(alerts, config)
        self._http = HttpServer(
            {"/livez": _alive},
            console(
                config,
                allow_changes=allow_changes,
                needs_login=login,
                bodies=bodies,
                alerts=self._alerts,
                prometheus=prometheus,
            ),
        )

    @property
    def address(self) -> str:
        """`host:port` of its listener, once started."""
        return str(HostPort(*(self._bound or (self._host, self._port))))

    async def start(self) -> None:
        """Listen. Raises `AddressError` for a port in use. Without alerts, servers are contacted only once a page is
        opened."""
        with listening("--port", self._host, self._port):
            self._bound = self._http.start(await claim(self._host, self._port))
        if self._alerts is not None:
            self._alerts.start()

    async def stop(self) -> None:
        """Stop listening, close the connections. Idempotent."""
        if self._alerts is not None:
            await self._alerts.stop()
        await self._http.stop()


async def _alive(_accept: str) -> Page:
    return Page("ok\n")
