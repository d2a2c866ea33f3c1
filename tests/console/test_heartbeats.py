"""Heartbeats during console load: console work runs on another thread."""

import asyncio
import threading
import time

import rmqpy
from apiclient import api_of
from broker.talk import beat, heartbeat
from rmqpy.server import Standalone
from wire import Peer

MESSAGES = 20_000
#: Heartbeats that are answered during the longest query: one at most if they waited for it.
DURING_MIN = 5
QUERIES = (
    "/messages?topic=searched&text=nothing-has-it&scan_max=100000",
    "/messages?topic=searched&scan_max=100000&found_max=1000",
    "/groups?size=500",
    "/overview",
    "/health",
)


async def test_queries_of_the_console_delay_no_heartbeat(reading: Standalone) -> None:
    with rmqpy.Producer(reading.namesrv) as producer:
        for sent in [producer.submit("searched", b"x" * 100) for _ in range(MESSAGES)]:
            sent.result()
    ask = api_of(reading.http)
    is_over = threading.Event()
    #: Begin and end of each.
    queries: list[tuple[float, float]] = []
    heartbeats: list[tuple[float, float]] = []

    def query(path: str) -> None:
        while not is_over.is_set():
            begun = time.monotonic()
            assert ask(path).status == 200
            queries.append((begun, time.monotonic()))

    threads = [threading.Thread(target=query, args=(path,)) for path in QUERIES]
    for thread in threads:
        thread.start()
    try:
        async with await Peer.connect(reading.broker) as peer:
            while len(queries) < 4 * len(QUERIES):
                # Each from another client, so that the broker's Python handles it.
                number = len(heartbeats)
                begun = time.monotonic()
                reply = await beat(peer, heartbeat(f"client-{number}", f"group-{number % 7}"))
                heartbeats.append((begun, time.monotonic()))
                assert reply.code == 0
    finally:
        is_over.set()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    begun, ended = max(queries, key=lambda query: query[1] - query[0])
    during = sum(begun < began and answered < ended for began, answered in heartbeats)
    delays = sorted(answered - began for began, answered in heartbeats)
    print(
        f"{during} of {len(delays)} heartbeats during a query of {ended - begun:.2f} s: "
        f"median {1e3 * delays[len(delays) // 2]:.1f} ms, longest {1e3 * delays[-1]:.1f} ms"
    )
    assert during >= DURING_MIN
