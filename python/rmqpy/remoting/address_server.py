"""Address server: an HTTP server that returns the name servers as `host:port;host:port`.

Owns the newest list of one URL. Invariant: a list stays until another one arrives; an address server that is down or
returns nothing changes nothing. An aged list is refreshed by a short-lived thread in the background. Any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from rmqpy import errors
from rmqpy.config.client import addresses
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)

#: The age at which a list in use is refreshed.
POLL_S: Final = 120.0
#: The most bytes of a list that are read.
LIST_BYTES_MAX: Final = 64 << 10


class AddressServer:
    def __init__(self, url: str, *, unit: str, timeout: float) -> None:
        """`unit`: the client's, which may have a separate list. `timeout`: seconds for each response."""
        self.url = f"{url}-{unit}?nofix=1" if unit else url
        self._timeout = timeout
        self._known: tuple[str, ...] = ()
        self._failure: errors.NameServerUnreachable | None = None
        self._due_at = 0.0
        self._lock = threading.Lock()
        self._fetching: threading.Thread | None = None

    def newest(self) -> tuple[str, ...]:
        """The list; the first call blocks until it is there. Raises `NameServerUnreachable`."""
        if not self._known:
            self._begin().join()
            self._check()
        elif time.monotonic() > self._due_at:
            self._begin()
        return self._known

    async def ready(self, caller: Caller) -> None:
        """Wait for a list. Raises `NameServerUnreachable`."""
        if not self._known:
            fetching = self._begin()
            while fetching.is_alive():
                await caller.sleep(0.01)
            self._check()

    def _check(self) -> None:
        if not self._known:
            raise self._failure or errors.NameServerUnreachable(f"{self.url} returned no name server")

    def _begin(self) -> threading.Thread:
        with self._lock:
            if self._fetching is None or not self._fetching.is_alive():
                self._fetching = threading.Thread(
                    target=self._fetch, name="rmqpy-address-server", daemon=True
                )
                self._fetching.start()
            return self._fetching

    def _fetch(self) -> None:
        # The import takes longer than most clients take to start.
        from http.client import HTTPException
        from urllib.request import ProxyHandler, build_opener

        try:
            # A server of the local network: proxies do not lead there.
            with build_opener(ProxyHandler({})).open(self.url, timeout=self._timeout) as answer:
                found = addresses(answer.read(LIST_BYTES_MAX).decode().strip())
            if "://" in found[0]:
                raise ValueError("it names another address server")
        except (OSError, ValueError, HTTPException) as error:
            failure = errors.NameServerUnreachable(f"cannot read name servers from {self.url}: {error}")
            if self._known and self._failure is None:
                log.warning("%s; using the last known ones", failure)
            self._failure = failure
        else:
            if self._known and found != self._known:
                log.info("%s returned other name servers: %s", self.url, ";".join(found))
            self._known, self._failure = found, None
        self._due_at = time.monotonic() + POLL_S
