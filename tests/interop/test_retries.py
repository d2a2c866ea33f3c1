"""A Java consumer that returns every message sees it again after growing delays, and then no more.

Goal: retries, delays and dead letters as the original's clients count on them. Method: the times at which the broker
stored each delivery tell the delays, whatever the machine is busy with; nothing may come early.
"""

import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from . import wire
from .messages import Outgoing
from .peers import Peer, ProcessPeer
from .servers import Cluster
from .toolchain import JAVA_CLIENTS

RETRIES = 2
#: Of levels 3 and 4, see `servers.DELAY_LEVELS`.
DELAYS_MS = [1_000, 2_000]
PATIENCE_SECONDS = 60.0


@pytest.mark.parametrize("client", [f"java-{version}" for version in JAVA_CLIENTS])
def test_a_returned_message_comes_again_after_growing_delays_and_ends_among_the_dead_letters(
    client: str, cluster_name: str, cluster_of: Callable[[str], Cluster], peer_of: Callable[[str], Peer]
) -> None:
    cluster, peer = cluster_of(cluster_name), peer_of(client)
    assert isinstance(peer, ProcessPeer)
    topic = group = f"interop-retries-{client}".replace(".", "_")
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    [sent] = peer.send(cluster.namesrv, topic, [Outgoing(b"never done", tag="paid", keys=("k1",))])
    listener = peer.listen_and_fail(cluster.namesrv, topic, group, retries=RETRIES)
    listener.wait_for(RETRIES + 1, PATIENCE_SECONDS)
    dead = _dead_letter(cluster.broker, group)
    consumed = listener.stop()

    assert [message.reconsume_times for message in consumed] == [0, 1, 2]
    for message in consumed:
        assert (message.topic, message.body, message.tag, message.keys) == (
            topic,
            b"never done",
            "paid",
            "k1",
        )
        assert message.id == sent.id
    for message in consumed[1:]:
        assert message.properties["ORIGIN_MESSAGE_ID"] == sent.offset_id
    delays = [later.stored_ms - earlier.stored_ms for earlier, later in pairwise(consumed)]
    assert all(delay >= least for delay, least in zip(delays, DELAYS_MS, strict=True)), delays
    assert b"never done" in dead
    assert f"RETRY_TOPIC\x01{topic}\x02".encode() in dead


def _dead_letter(broker: str, group: str) -> bytes:
    """The first dead letter of a group, waited for: the client returns messages on threads of its own."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while wire.max_offset(broker, f"%DLQ%{group}", 0) == 0:
        if time.monotonic() > deadline:
            raise AssertionError("the message was not given up")
        time.sleep(0.05)
    return wire.pull(broker, f"%DLQ%{group}", 0, 0)
