"""Mode copy: the master's request modes. Threads: the event loop's."""

from __future__ import annotations

from typing import Final

from rmqpy.control.groups.request_modes import MODES_MAX, RequestModes
from rmqpy.errors import DecodeError, Unsupported
from rmqpy.protocol.requests.assignments import GetAllMessageRequestMode
from rmqpy.remoting.client import Peer

#: Apache's slaves ask every minute.
SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 10.0


class ModeCopy:
    """The copy of the modes."""

    what = "request modes"

    def __init__(self, modes: RequestModes) -> None:
        self._modes = modes

    async def copy(self, master: Peer) -> float:
        """Ask for the modes, and take them over. Raises `RocketMQError`."""
        try:
            content = await master.call(GetAllMessageRequestMode(), timeout=ANSWER_SECONDS)
        except Unsupported:
            # It is of a release before 5.0.
            return SECONDS
        count = sum(map(len, content.message_request_mode_map.values()))
        if count > MODES_MAX:
            raise DecodeError(f"{master.address} has {count} request modes, more than {MODES_MAX}")
        await self._modes.copy_all(content)
        return SECONDS
