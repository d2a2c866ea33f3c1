"""Masters and controllers killed and paused under load: `make campaign NAME=controller-kills`.

One set of brokers elects its masters through controllers, ours, or Apache's with `--jars`. Each round hits the master,
the leading controller, or both, while senders send through one producer of ours, as `rounds` describes.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

from campaigns.election import rounds
from campaigns.election.elected_set import ElectedSet
from campaigns.election.servers import Server

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--controllers", type=int, default=3, help="controllers of the group")
    parser.add_argument(
        "--jars", type=Path, help="the folder of Apache's server: its controllers instead of ours"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dead-after", type=int, default=3_000, help="controllerHeartBeatTimeoutMills")
    given = parser.parse_args()
    random.seed(given.seed)
    with tempfile.TemporaryDirectory(prefix="rmqpy-election-") as name:
        settings = {"controllerHeartBeatTimeoutMills": given.dead_after}
        elected = ElectedSet(Path(name), given.replicas, given.controllers, given.jars, **settings)
        faults = islice(cycle(given.faults.split(",")), given.rounds)
        with rounds.showing_logs(elected), ExitStack() as undo:
            elected.start(undo)
            is_whole = rounds.run(elected, faults, lambda fault: FAULTS[fault](elected))
    raise SystemExit(not is_whole)


if __name__ == "__main__":
    main()
