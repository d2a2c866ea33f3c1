"""Masters and controllers killed and paused under load: `make campaign NAME=controller-kills`.

One set of brokers elects its masters through controllers, ours, or Apache's with `--jars`. Each round hits the master,
the leading controller, or both, while senders send through one producer of ours. A round ends when messages are
accepted again and the broker that was hit is back among the replicas in sync, without an operator. In the end every
acknowledged message must be in the log of the last master, and all logs must be equal.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from campaigns.election.elected_set import ACCEPTED_SECONDS_MAX, ElectedSet
from campaigns.election.senders import Senders
from campaigns.election.servers import Server

TOPIC = "orders"
QUEUES = 4
SENDERS = 16
#: Accepted sends before a round.
SENDS_BEFORE = 200
LEADER_AWAY_SECONDS = 1.0


def kill(elected: ElectedSet) -> Callable[[], None]:
    """Kill the master; the returned function starts it again."""
    master = elected.master()
    master.kill()
    return master.start


def stop(elected: ElectedSet) -> Callable[[], None]:
    """Stop the master in order."""
    master = elected.master()
    master.stop()
    return master.start


def pause(elected: ElectedSet) -> Callable[[], None]:
    """Pause the master."""
    master = elected.master()
    master.send(signal.SIGSTOP)
    return lambda: master.send(signal.SIGCONT)


def leader(elected: ElectedSet) -> Callable[[], None]:
    """Kill the leading controller. The only one starts again after a second."""
    killed = elected.leader()
    killed.kill()
    time.sleep(LEADER_AWAY_SECONDS)
    return _another_leads_or_start(elected, killed)


def both(elected: ElectedSet) -> Callable[[], None]:
    """Kill the leading controller, and then the master, during the election of a controller. The only controller starts
    again, and elects a master by its log."""
    master, killed = elected.master(), elected.leader()
    killed.kill()
    master.kill()
    start_controller = _another_leads_or_start(elected, killed)

    def back() -> None:
        start_controller()
        master.start()

    return back


def _another_leads_or_start(elected: ElectedSet, killed: Server) -> Callable[[], None]:
    """Start the only controller now; of several, return the start of the killed one."""
    if len(elected.controllers) > 1:
        return killed.start
    killed.start()
    return lambda: None


FAULTS = {each.__name__: each for each in (kill, stop, pause, leader, both)}


def run(elected: ElectedSet, faults: list[str], rounds: int) -> bool:
    """Run the rounds, print the table; return whether nothing was lost."""
    silences: dict[str, list[float]] = defaultdict(list)
    returns: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as undo:
        elected.start(undo)
        elected.wait_in_sync()
        elected.make_topic(TOPIC, QUEUES)
        with Senders(elected.namesrv.address, TOPIC, SENDERS) as senders:
            for number in range(rounds):
                fault = faults[number % len(faults)]
                senders.wait_for(SENDS_BEFORE, ACCEPTED_SECONDS_MAX)
                began = time.monotonic()
                back = FAULTS[fault](elected)
                senders.wait_for(SENDS_BEFORE, ACCEPTED_SECONDS_MAX)
                accepted = time.monotonic()
                back()
                elected.wait_in_sync()
                joined = time.monotonic()
                senders.wait_for(SENDS_BEFORE, ACCEPTED_SECONDS_MAX)
                silence = senders.silence(began, time.monotonic())
                silences[fault].append(silence)
                returns[fault].append(joined - accepted)
                print(
                    f"round {number + 1}: {fault}: {silence:.2f} s without an accepted send, back in sync after "
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--controllers", type=int, help="1, or with --jars 3")
    parser.add_argument(
        "--jars", type=Path, help="the folder of Apache's server: its controllers instead of ours"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dead-after", type=int, default=3_000, help="controllerHeartBeatTimeoutMills")
    given = parser.parse_args()
    random.seed(given.seed)
    with tempfile.TemporaryDirectory(prefix="rmqpy-election-") as name:
        settings = {"controllerHeartBeatTimeoutMills": given.dead_after}
        count = given.controllers or (3 if given.jars else 1)
        elected = ElectedSet(Path(name), given.replicas, count, given.jars, **settings)
        try:
            is_whole = run(elected, given.faults.split(","), given.rounds)
        except BaseException:
            for server in (*elected.brokers, *elected.controllers):
                print(f"---- {server.name}")
                print(server.log.read_text(errors="replace")[-12_000:] if server.log.exists() else "no log")
            raise
    raise SystemExit(not is_whole)


if __name__ == "__main__":
    main()
