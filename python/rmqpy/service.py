"""Service: started and stopped on an event loop, or entered and left."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Service(ABC):
    """A server of this process."""

    @abstractmethod
    async def start(self) -> None:
        """Begin to serve; returns when the first request can be answered."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop serving and release everything. Idempotent, and harmless after a `start` that failed."""

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
