"""Service: start and stop on an event loop or as a context, and notifications for a supervisor."""

import os
import socket
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self


class Service(ABC):
    """A server of this process."""

    @abstractmethod
    async def start(self) -> None:
        """Start serving; returns when requests can be answered."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop serving and release everything. Idempotent, and harmless after a failed `start`."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def notify_supervisor(state: str) -> None:
    """Send a state such as `READY=1` to systemd, or another supervisor at $NOTIFY_SOCKET.

    Does nothing without the variable. A supervisor that does not listen is not an error.
    """
    if address := os.environ.get("NOTIFY_SOCKET"):
        # A leading @ means the zero byte of an abstract address.
        address = "\0" + address[1:] if address.startswith("@") else address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
            supervisor.sendto(state.encode(), address)
