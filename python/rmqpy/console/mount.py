"""Mount point of the console, imported when servers start; the rest is imported at the first connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqpy.alerts.watch import AlertWatch
    from rmqpy.config.client import ClientConfig
    from rmqpy.console.site import Console


def console(
    cluster: ClientConfig | Sequence[str],
    *,
    allow_changes: bool,
    needs_login: bool,
    bodies: str,
    alerts: AlertWatch | None = None,
    prometheus: str = "",
) -> Callable[[str], Console]:
    """Return the console of a cluster, given a client configuration or name servers, for an HTTP server. Beyond
    loopback it always needs a login. `bodies`: visibility of message bodies for users other than super users.
    `prometheus`: its base URL, for links of charts."""

    def load(host: str) -> Console:
        from rmqpy.config.client import ClientConfig
        from rmqpy.console.bodies import BodyView
        from rmqpy.console.site import Console

        config = cluster if isinstance(cluster, ClientConfig) else ClientConfig(namesrv=cluster)
        return Console(
            config,
            host=host,
            allow_changes=allow_changes,
            needs_login=needs_login,
            bodies=BodyView(bodies),
            alerts=alerts,
            prometheus=prometheus,
        )

    return load
