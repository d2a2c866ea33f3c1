"""Lifetime of a client: open until it is closed, in the process that created it.

A producer or consumer refuses to work after it was closed or carried over a fork, and warns when it is left open.
"""

from __future__ import annotations

import os
import warnings
from typing import ClassVar

from rmqpy import errors
from rmqpy.config.client import Address, ClientConfig


class Lifetime:
    """The lifetime of one client."""

    #: The noun for the client in errors.
    _NOUN: ClassVar[str]
    #: True until the constructor has finished.
    is_closed = True

    def __init__(self, namesrv: Address | ClientConfig | None) -> None:
        self.config = ClientConfig.of(namesrv)
        self._pid = os.getpid()

    def __repr__(self) -> str:
        group = f" {self.group} at" if hasattr(self, "group") else " to"
        return f"<{type(self).__name__}{group} {';'.join(self.config.namesrv)}: {self._state}>"

    def __del__(self) -> None:
        if self._is_left_open and not self._is_forked:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
            self._release()

    @property
    def _state(self) -> str:
        return "closed" if self.is_closed else "open"

    @property
    def _is_left_open(self) -> bool:
        return not self.is_closed

    @property
    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

    def _release(self) -> None:
        """Release the resources of a client that was left open."""

    def _check_open(self) -> None:
        if self.is_closed:
            raise errors.ClosedError(f"the {self._NOUN} is closed")
        if self._is_forked:
            raise errors.ForkedError(f"this {self._NOUN} was created before fork(): create one in the child")
