"""Popped messages while a slave acts for its master: they wait for the master, and no other broker touches them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from waiting import until_async
from wire import Peer

from .conftest import made_broker
from .popping import messages, pop
from .replicas import made_slave
from .talk import send
from .test_acting import ESCAPES, acts
from .test_pop_roles import (
    FLOW_CONTROL,
    INVISIBLE_MS,
    POLLING_TIMEOUT,
    has_all,
    opened,
    popped_again,
    topics_copied,
)

pytestmark = pytest.mark.usefixtures("tries_soon")


@pytest.fixture
async def namesrv() -> AsyncIterator[str]:
    config = NameServerConfig(
        listen_port=0, kv_path="", store_path="", acting_master=True, tells_smallest=True
    )
    async with NameServer(config) as server:
        yield server.address


@asynccontextmanager
async def acting_for_a_while(folder: Path, namesrv: str) -> AsyncIterator[list[bytes]]:
    """A slave that acts for its master while popped messages fall due; yields what is open, with the slave running."""
    async with made_broker(folder, namesrv, ESCAPES) as master:
        async with await Peer.connect(master.address) as peer:
            left = await opened(peer)
        slave = made_slave(folder, namesrv, **ESCAPES)
        await slave.start()
        await has_all(slave, master)
        await topics_copied(folder)
    try:
        async with await Peer.connect(slave.address) as peer:
            await until_async(lambda: acts(peer), bool)
            assert (await pop(peer)).code == FLOW_CONTROL
            # Their time ends while the slave acts.
            await asyncio.sleep(INVISIBLE_MS / 1_000 + 0.5)
        yield left
    finally:
        await slave.stop()


async def test_open_messages_wait_for_their_master_while_a_slave_acts(tmp_path: Path, namesrv: str) -> None:
    async with made_broker(tmp_path / "other", namesrv, {"brokerName": "broker-b"}) as other:
        async with await Peer.connect(other.address) as peer:
            # Its messages at the same offsets must not be taken for those of the other broker.
            for number in range(10):
                assert (await send(peer, "jobs", b"of the other %d" % number)).code == 0
            assert len(messages(await pop(peer, wait=5_000))) == 10
        async with acting_for_a_while(tmp_path, namesrv) as left:
            async with await Peer.connect(other.address) as peer:
                assert (await pop(peer, wait=500)).code == POLLING_TIMEOUT
            async with (
                made_broker(tmp_path, namesrv, ESCAPES) as master,
                await Peer.connect(master.address) as peer,
            ):
                assert await popped_again(peer, len(left)) == left
