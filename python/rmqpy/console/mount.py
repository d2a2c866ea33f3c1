"""The console as servers mount it: imported when they start; the rest waits for the first connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqpy.config.client import ClientConfig
    from rmqpy.console.site import Console


def console(
    cluster: ClientConfig | Sequence[str], *, allow_changes: bool, needs_login: bool, bodies: str
) -> Callable[[str], Console]:
    """The console of a cluster, by a configuration of clients or by its name servers, for an HTTP server. Off loopback
    it needs a login whatever is said here. `bodies`: what users that are no super users see of them."""

    def load(host: str) -> Console:
        from rmqpy.config.client import ClientConfig
        from rmqpy.console.bodies import BodyView
        from rmqpy.console.site import Console

        config = cluster if isinstance(cluster, ClientConfig) else ClientConfig(namesrv=cluster)
        return Console(
            config, host=host, allow_changes=allow_changes, needs_login=needs_login, bodies=BodyView(bodies)
        )

    return load
