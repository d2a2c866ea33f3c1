"""Switches of the master, as clients see them: `make campaign NAME=controller-clients`.

Our clients, Java's 5.5.0 and 4.9.8, Go's, and a 5.x client behind `rmqpy proxy` send one message after the other to
one elected set, and consume all messages, while its master is killed, or moved in order, in turn. For each client the
longest time without an accepted send around each switch is recorded. In the end every acknowledged message must be in
the log of the last master, and every client must have consumed it. A message is repeated if it is in the log, or
was consumed, more than once.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import rmqpy
from campaigns.election import applications, rounds
from campaigns.election.applications import KINDS, Application
from campaigns.election.elected_set import ElectedSet, until
from campaigns.election.servers import BROKER_NAME
from interop.toolchain import Originals

TOPIC = "orders"
QUEUES = 4
#: Accepted sends of each client before and after a switch.
SENDS = 20
WAIT_SECONDS_MAX = 120.0
#: The silence of which the reasons are printed.
LONG_SECONDS = 10.0
COLUMNS = (
    "client", "switches", "median silence", "longest silence", "accepted", "failed", "lost", "repeated",
    "not consumed", "consumed again",
)  # fmt: skip

#: The silences of a client, by the kind of the switch.
Silences = dict[str, dict[str, list[float]]]


def wait_for(clients: Sequence[Application], count: int) -> None:
    """Wait until each client has sent this many messages more."""
    before = {client.name: len(client.accepted) for client in clients}

    def have_sent() -> bool:
        return all(len(client.accepted) >= before[client.name] + count for client in clients)

    try:
        until(have_sent, WAIT_SECONDS_MAX, "a client does not go on")
    except AssertionError:
        for client in clients:
            print(f"{client.name}: {len(client.accepted)} accepted, failed: {client.failures[-3:]}")
        raise


def wait_consumed(clients: Sequence[Application], bodies: set[bytes]) -> None:
    """Wait until each client has consumed these messages, or has no more time for it."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        if all(bodies <= client.consumed().keys() for client in clients):
            return
        time.sleep(0.2)


def switch(elected: ElectedSet, number: int) -> tuple[str, Callable[[], None]]:
    """Replace the master: kill it, or move its role; the returned function starts it again."""
    master = elected.master()
    if number % 2 == 0:
        master.kill()
        return "killed", master.start
    with rmqpy.Admin(elected.namesrv.address) as admin:
        admin.failover(BROKER_NAME)
    return "moved", lambda: None


def run(elected: ElectedSet, names: Sequence[str], count: int, folder: Path) -> bool:
    """Run the switches, print the table; return whether nothing was lost."""
    silences: Silences = {name: {} for name in names}
    originals = Originals()
    with ExitStack() as undo:
        undo.callback(originals.close)
        elected.start(undo)
        elected.wait_in_sync()
        elected.make_topic(TOPIC, QUEUES)
        with ExitStack() as running:
            clients = [
                applications.start(name, elected.namesrv.address, TOPIC, folder, originals, running)
                for name in names
            ]
            wait_for(clients, SENDS)
            for number in range(count):
                began = time.time()
                failed_before = {client.name: len(client.failures) for client in clients}
                how, back = switch(elected, number)
                wait_for(clients, SENDS)
                back()
                elected.wait_in_sync()
                wait_for(clients, SENDS)
                ended = time.time()
                seconds = {client.name: client.silence(began, ended) for client in clients}
                for name, found in seconds.items():
                    silences[name].setdefault(how, []).append(found)
                shown = ", ".join(f"{name} {found:.2f}" for name, found in seconds.items())
                print(f"switch {number + 1}, {how}: {shown}", flush=True)
                for client in clients:
                    if seconds[client.name] > LONG_SECONDS:
                        reasons = Counter(client.failures[failed_before[client.name] :])
                        print(f"  {client.name} failed: {dict(reasons.most_common(3))}", flush=True)
            for client in clients:
                client.end()
            wait_consumed(clients, {body for client in clients for body in client.bodies()})
            consumed = {client.name: client.consumed() for client in clients}
        stored = elected.stored(TOPIC, QUEUES)
        elected.wait_equal()
    print(table(clients, silences, stored, consumed))
    accepted = {body for client in clients for body in client.bodies()}
    lost = accepted - stored.keys()
    missing = {name: len(accepted - bodies.keys()) for name, bodies in consumed.items()}
    for body in sorted(lost)[:10]:
        print(f"lost: {body!r}")
    return not lost and not any(missing.values())


def table(
    clients: Sequence[Application],
    silences: Silences,
    stored: Counter[bytes],
    consumed: dict[str, Counter[bytes]],
) -> str:
    """Format a row for each client and kind of switch as Markdown; the messages are in its first row."""
    rows: list[tuple[str, ...]] = [COLUMNS, tuple("---" for _ in COLUMNS)]
    accepted = {body for client in clients for body in client.bodies()}
    for client in clients:
        own = [count for body, count in stored.items() if body.startswith(f"{client.name}-".encode())]
        got = consumed[client.name]
        messages = (
            len(client.accepted),
            len(client.failures),
            len(client.bodies() - stored.keys()),
            sum(own) - len(own),
            len(accepted - got.keys()),
            got.total() - len(got),
        )
        shown = tuple(f"{count:,}" for count in messages)
        for how, longest in silences[client.name].items():
            middle, high = statistics.median(longest), max(longest)
            rows.append(
                (f"{client.name}, {how}", str(len(longest)), f"{middle:.2f} s", f"{high:.2f} s", *shown)
            )
            shown = tuple("" for _ in messages)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", default=",".join(KINDS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqpy-switches-") as name:
        folder = Path(name)
        elected = ElectedSet(folder / "servers", 3, 3)
        with rounds.showing_logs(elected):
            is_whole = run(elected, given.clients.split(","), given.rounds, folder)
    raise SystemExit(not is_whole)


if __name__ == "__main__":
    main()
