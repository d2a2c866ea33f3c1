"""The state of a master, as the copies of its slave show it: it answers or is down."""

import asyncio
from typing import Any

from rmqpy.control.replicas import follower
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.errors import ConnectError
from rmqpy.protocol.requests.registration import Registered
from waiting import until_async


class StepwiseCopy:
    """A copy whose every run ends when the test says so, with an error or without."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.began = 0
        self._ends: asyncio.Queue[Exception | None] = asyncio.Queue()

    def end(self, error: Exception | None = None) -> None:
        self._ends.put_nowait(error)

    async def copy(self, master: Any) -> float:
        self.began += 1
        if error := await self._ends.get():
            raise error
        return 0.0


async def test_reply_from_before_a_failure_does_not_show_that_the_master_is_back(monkeypatch: Any) -> None:
    monkeypatch.setattr(follower, "RETRY_SECONDS", 0.0)
    master = KnownMaster()
    master.learn(Registered(master_addr="127.0.0.1:1", ha_server_addr="127.0.0.1:2"))
    tables, offsets = StepwiseCopy("topics"), StepwiseCopy("offsets")
    changes: list[bool] = []
    following = follower.Follower(master, lambda address: None, (tables, offsets), changes.append)  # type: ignore[arg-type, return-value]
    following.start()
    try:
        tables.end()
        await until_async(lambda: tables.began == 2)
        assert changes == [True]
        tables.end(ConnectError("connection refused"))
        await until_async(lambda: tables.began == 3)
        # This run of the offsets began while the master lived.
        offsets.end()
        await until_async(lambda: offsets.began == 2)
        assert changes == [True, False]
        offsets.end()
        await until_async(lambda: offsets.began == 3)
        assert changes == [True, False, True]
    finally:
        await following.stop()


class HeldCopy:
    """A copy whose request is held until another broker is the master."""

    what = "topics"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def copy(self, master: Any) -> float:
        self.asked.append(master.address)
        await master.call(None)
        raise AssertionError("nothing answers")


async def test_held_request_ends_when_another_broker_is_the_master() -> None:
    class Silent:
        async def call(self, ask: Any, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as in Peer
            await asyncio.Event().wait()

    master, held = KnownMaster(), HeldCopy()
    master.assign("127.0.0.1:1", 1)
    changes: list[bool] = []
    following = follower.Follower(master, lambda address: Silent(), (held,), changes.append)  # type: ignore[arg-type, return-value]
    following.start()
    try:
        await until_async(lambda: held.asked, lambda asked: asked == ["127.0.0.1:1"])
        master.assign("127.0.0.1:1", 2)
        master.assign("127.0.0.1:2", 3)
        await until_async(lambda: held.asked, lambda asked: asked == ["127.0.0.1:1", "127.0.0.1:2"])
        assert (following.fault, changes) == (None, [])
    finally:
        await following.stop()
