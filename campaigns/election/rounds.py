"""Rounds of faults under load: silences without an accepted send, returns to the set in sync, and lost messages.

A round ends when messages are accepted again and all replicas are in sync, without an operator. In the end every
acknowledged message must be in the log of the last master, and all logs must be equal.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from campaigns.election.elected_set import ACCEPTED_SECONDS_MAX, ElectedSet
from campaigns.election.senders import Senders

TOPIC = "orders"
QUEUES = 4
SENDERS = 16
#: Accepted sends before and after a fault.
SENDS = 200

Hit = Callable[[str], Callable[[], None]]
"""Causes the fault of this name; returns the function that repairs it."""


def run(elected: ElectedSet, faults: Iterable[str], hit: Hit) -> bool:
    """Run a round for each fault at running servers, print the table; return whether nothing was lost."""
    silences: dict[str, list[float]] = defaultdict(list)
    returns: dict[str, list[float]] = defaultdict(list)
    elected.wait_in_sync()
    elected.make_topic(TOPIC, QUEUES)
    with Senders(elected.namesrv.address, TOPIC, SENDERS) as senders:
        for number, fault in enumerate(faults, 1):
            senders.wait_for(SENDS, ACCEPTED_SECONDS_MAX)
            began = time.monotonic()
            repair = hit(fault)
            senders.wait_for(SENDS, ACCEPTED_SECONDS_MAX)
            accepted = time.monotonic()
            repair()
            elected.wait_in_sync()
            joined = time.monotonic()
            senders.wait_for(SENDS, ACCEPTED_SECONDS_MAX)
            silence = senders.silence(began, time.monotonic())
            silences[fault].append(silence)
            returns[fault].append(joined - accepted)
            print(
                f"round {number}: {fault}: {silence:.2f} s without an accepted send, back in sync after "
                f"{joined - accepted:.1f} s",
                flush=True,
            )
    stored = elected.stored(TOPIC, QUEUES)
    elected.wait_equal()
    lost = [body for body in senders.acknowledged if body not in stored]
    for body in lost[:10]:
        print(f"lost: {body!r}")
    for fault, found in silences.items():
        found.sort()
        high = found[min(len(found) - 1, int(len(found) * 0.99))]
        middle, late = statistics.median(found), returns[fault]
        print(
            f"{fault}: {len(found)} rounds; seconds without an accepted send: median {middle:.2f}, p99 {high:.2f}, max "
            f"{found[-1]:.2f}; back in sync: median {statistics.median(late):.1f}, max {max(late):.1f}"
        )
    kinds = Counter(each.split()[1] for each in senders.failures)
    print(
        f"{len(senders.acknowledged)} acknowledged, {len(lost)} lost, {stored.total() - len(stored)} repeated, "
        f"{stored.total()} stored; failed sends: {dict(kinds)}; logs equal: True"
    )
    return not lost


@contextmanager
def showing_logs(elected: ElectedSet) -> Iterator[None]:
    """Print the ends of the servers' logs if the rounds fail."""
    try:
        yield
    except BaseException:
        for server in (*elected.brokers, *elected.controllers):
            print(f"---- {server.name}")
            print(server.log.read_text(errors="replace")[-12_000:] if server.log.exists() else "no log")
        raise
