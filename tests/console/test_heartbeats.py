"""Heartbeats beside a console that is busy: what it is asked for works on another thread than theirs."""

import asyncio
import threading
import time

import rmqpy
from apiclient import api_of
from broker.talk import beat, heartbeat
from rmqpy.server import Standalone
from wire import Peer

MESSAGES = 20_000
#: Seconds that a heartbeat may take beside it. A query takes longer by far than what a client waits for.
LONGEST_S = 1.0
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
    taken: list[float] = []

    def query(path: str) -> None:
        while not is_over.is_set():
            begun = time.monotonic()
            assert ask(path).status == 200
            taken.append(time.monotonic() - begun)

    threads = [threading.Thread(target=query, args=(path,)) for path in QUERIES]
    for thread in threads:
        thread.start()
    delays = []
    try:
        async with await Peer.connect(reading.broker) as peer:
            until = time.monotonic() + 4.0
            number = 0
            while time.monotonic() < until:
                # Each is another one, so that the broker's Python has to look at it.
                begun = time.monotonic()
                reply = await beat(peer, heartbeat(f"client-{number}", f"group-{number % 7}"))
                delays.append(time.monotonic() - begun)
                assert reply.code == 0
                number += 1
                await asyncio.sleep(0.01)
    finally:
        is_over.set()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    delays.sort()
    print(
        f"{len(delays)} heartbeats beside {len(taken)} queries of up to {max(taken):.2f} s: "
        f"median {1e3 * delays[len(delays) // 2]:.1f} ms, longest {1e3 * delays[-1]:.1f} ms"
    )
    assert len(taken) >= len(QUERIES)
    assert delays[-1] < LONGEST_S
