"""Sets of brokers with elections, whose servers are processes that serve all tests of a file."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

from campaigns.election.elected_set import ElectedSet
from campaigns.election.servers import Server
from rmqpy.protocol.codes import RequestCode
from waiting import until
from wire import Peer

TOPIC = "orders"
QUEUES = 4


def started(elected: ElectedSet) -> Iterator[ElectedSet]:
    """Start the servers and make the topic; end the servers afterwards."""
    with ExitStack() as undo:
        elected.start(undo)
        elected.wait_in_sync()
        elected.make_topic(TOPIC, QUEUES)
        # A slave that does not wait for changes yet copies the topic later, and could be elected without it.
        until(lambda: all(map(_has_topic, elected.brokers)))
        yield elected


def _has_topic(broker: Server) -> bool:
    async def ask() -> bool:
        async with await Peer.connect(broker.address) as peer:
            return (await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC})).code == 0

    return asyncio.run(ask())


def revived(elected: ElectedSet) -> Iterator[ElectedSet]:
    """All servers run, and all brokers are in sync. The ends of the logs are shown if the test fails."""
    servers = (*elected.controllers, *elected.brokers)
    for server in servers:
        server.revive()
    elected.wait_in_sync()
    yield elected
    for server in servers:
        print(f"---- {server.name}\n{server.log.read_text(errors='replace')[-4_000:]}")
