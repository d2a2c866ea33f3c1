"""Every attack, and the wait of a well-behaved client meanwhile.

    make campaign NAME=hostile ONLY=WORDS EVERY=1

For each case, windows without and with the attack take turns, on the same servers and in the same minute. A broker
is attacked continuously throughout the window; a name server, whose one thread answers in turn, once in each. The
ratio compares the medians of all windows' 99th percentiles: an attack has its effect in each window, the machine
only in some. If it is above the limit, the case is measured again with more windows, and both measurements count. An
attack by conduct has one window as long as the attack, and a longer one when it is measured again.

The attacker runs at the lowest priority, the client at a real-time one: the servers are measured, not how the kernel
divides few cores. If the ratio stays above the limit, the same bytes go to a process that discards them, or answers
with as many if a server answers, while the server is idle. The waits meanwhile are the machine's part, and the
second ratio shows what the server adds.
"""

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from campaigns.hostile.sink import Sink, pour, sink
from hostile.attack import CROWD_GROWTH_MAX, GROWTH_MAX, Row, attempt, contained, is_served
from hostile.cases import BYTES, REQUESTS
from hostile.cases.case import Case
from hostile.citizen import CitizenProcess
from hostile.conduct import ANSWERED, CONDUCT, CROWDS
from hostile.target import Address, Target, parsed, running

RATIO_MAX = 2.0
WINDOW_S = 0.25
#: Shortest time from one attempt to the next; a large case takes longer anyway.
PAUSE_S = {"broker": 0.02, "namesrv": WINDOW_S}
#: Windows of a case whose first ratio was too high, for each that it had.
AGAIN = 3
#: The length of the windows without an attack before an attack by conduct.
CONDUCT_WINDOW_S = 3.0

#: Name, target, attack: a row of the table of conduct.
Conduct = tuple[str, str, Callable[[Address], None]]

#: Larger than what a case writes, so that no send waits for the next file of the log.
SEGMENT_BYTES = 512 << 20


@dataclass
class Waits:
    """Microseconds, by windows: without and with the attack, and while a process discards its bytes."""

    calm: list[list[int]] = field(default_factory=list)
    attacked: list[list[int]] = field(default_factory=list)
    baseline: list[list[int]] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return p99(self.attacked) / p99(self.calm)

    @property
    def server_ratio(self) -> float:
        """The ratio without the machine's part, if that was measured."""
        return p99(self.attacked) / max(p99(self.calm), p99(self.baseline) if self.baseline else 0)


def p99(windows: list[list[int]]) -> float:
    return statistics.median(sorted(waits)[-max(1, len(waits) // 100)] for waits in windows)


@dataclass(frozen=True)
class Measured:
    row: Row
    waits: Waits

    @property
    def is_right(self) -> bool:
        return self.row.is_right and self.waits.server_ratio <= RATIO_MAX

    def __str__(self) -> str:
        mark = "  " if self.is_right else "!!"
        waits = self.waits
        baseline = (
            f"{p99(waits.baseline) / 1e3:>8.2f} {waits.server_ratio:>6.2f}" if waits.baseline else f"{'':15}"
        )
        return (
            f"{mark} {self.row.end:<9} {self.row.grown >> 10:>8} {p99(waits.calm) / 1e3:>8.2f}"
            f" {p99(waits.attacked) / 1e3:>8.2f} {waits.ratio:>6.2f} {baseline}  {self.row.name}"
        )


HEADING = (
    f"   {'answer':<9} {'RSS +KiB':>8} {'p99 ms':>8} {'attacked':>8} {'ratio':>6}"
    f" {'machine':>8} {'ratio':>6}  attack"
)


def measured_case(target: Target, citizen: CitizenProcess, nowhere: Sink, case: Case, pairs: int) -> Measured:
    server = "namesrv" if case.target == "namesrv" else "broker"
    before = target.memory()
    waits = Waits()
    ends: set[int | str] = set()

    def attack() -> None:
        ends.add(attempt(case, target.address(server)))

    for count in (pairs, pairs * AGAIN):
        for _ in range(count):
            citizen.begin(server, WINDOW_S)
            waits.calm.append(citizen.waits())
            citizen.begin(server, WINDOW_S)
            with repeated(attack, PAUSE_S[server]):
                waits.attacked.append(citizen.waits())
        if waits.ratio <= RATIO_MAX:
            break
    else:
        for _ in range(pairs * AGAIN):
            citizen.begin(server, WINDOW_S)
            with repeated(partial(pour, case.content, nowhere.silent), PAUSE_S[server]):
                waits.baseline.append(citizen.waits())
    end = ends.pop() if len(ends) == 1 else ", ".join(sorted(map(str, ends)))
    return Measured(Row(case.name, case.end, end, target.memory() - before), waits)


@contextmanager
def repeated(attack: Callable[[], None], pause: float) -> Iterator[None]:
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            due = time.monotonic() + pause
            attack()
            is_over.wait(due - time.monotonic())

    doing = threading.Thread(target=repeat, daemon=True)
    doing.start()
    try:
        yield
    finally:
        is_over.set()
        doing.join()


def measured_conduct(
    target: Target,
    citizen: CitizenProcess,
    nowhere: Sink,
    conduct: Conduct,
    grown_max: int,
) -> Measured:
    name, at, attack = conduct
    waits = Waits([[]], [[]])
    before = peak = target.memory()

    def waits_during(address: Address) -> Iterator[list[int]]:
        doing = threading.Thread(target=contained, args=(attack, address), daemon=True)
        doing.start()
        while doing.is_alive():
            citizen.begin(at, WINDOW_S)
            yield citizen.waits()

    for _ in range(2):
        citizen.begin(at, CONDUCT_WINDOW_S)
        waits.calm[0] += citizen.waits()
        for found in waits_during(target.address(at)):
            waits.attacked[0] += found
            peak = max(peak, target.memory())
        if waits.ratio <= RATIO_MAX:
            break
    else:
        waits.baseline.append([])
        for found in waits_during(nowhere.answering if name in ANSWERED else nowhere.silent):
            waits.baseline[0] += found
    return Measured(Row(name, "served", is_served(target, at), peak - before, grown_max), waits)


def campaign(
    target: Target, citizen: CitizenProcess, nowhere: Sink, only: str, every: int, pairs: int
) -> Iterator[Measured]:
    with suppress(OSError):
        os.nice(19)
    for case in [case for case in (*BYTES, *REQUESTS) if only in case.name][::every]:
        yield measured_case(target, citizen, nowhere, case, pairs)
    for conducts, grown_max in ((CONDUCT, GROWTH_MAX), (CROWDS, CROWD_GROWTH_MAX)):
        for conduct in conducts:
            if only in conduct[0]:
                yield measured_conduct(target, citizen, nowhere, conduct, grown_max)


def report(rows: Iterator[Measured], priority: str, to: Path) -> int:
    """Print the rows as they come and keep them; the number that are not right."""
    found = []
    lines = [f"{time.strftime('%F %T')}, {os.cpu_count()} cores, the client at {priority} priority", HEADING]
    print("\n".join(lines))
    for row in rows:
        found.append(row)
        lines.append(str(row))
        print(row, flush=True)
    wrong = sum(not row.is_right for row in found)
    worst = max(found, key=lambda row: row.waits.server_ratio)
    within = sum(row.waits.ratio <= RATIO_MAX for row in found)
    ratios = sorted(row.waits.ratio for row in found)
    grown = max(row.row.grown for row in found)
    lines.append(
        f"{len(found)} cases, {wrong} not right; 99th percentiles: median ratio {ratios[len(ratios) // 2]:.2f},"
        f" {within} within {RATIO_MAX:.0f}; without what the machine adds at most {worst.waits.server_ratio:.2f}"
        f" ({worst.row.name}); growth at most {grown >> 10} KiB"
    )
    print(lines[-1])
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("\n".join(lines) + "\n", "utf-8")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="WORDS", help="cases with these words in their name")
    parser.add_argument(
        "--every", type=int, default=1, help="each how manieth of the cases; all of the conduct (1)"
    )
    parser.add_argument("--pairs", type=int, default=3, help="windows of either kind for each case (3)")
    parser.add_argument("--report", type=Path, default=Path("target/reports/campaign-hostile.txt"))
    parser.add_argument("--broker", type=parsed, metavar="HOST:PORT", help="servers that run already")
    parser.add_argument("--namesrv", type=parsed, metavar="HOST:PORT")
    parser.add_argument("--pid", type=int, help="their process, whose private memory is watched")
    asked = parser.parse_args()
    with ExitStack() as open_:
        if asked.broker:
            target = Target(asked.broker, asked.namesrv, asked.pid)
            target.prepare()
        else:
            folder = open_.enter_context(tempfile.TemporaryDirectory())
            target = open_.enter_context(running(Path(folder), SEGMENT_BYTES))
        citizen = open_.enter_context(CitizenProcess.about(target))
        nowhere = open_.enter_context(sink())
        # The citizen begins; from then on all threads of this process are the attacker's.
        for server in ("broker", "namesrv"):
            citizen.begin(server, WINDOW_S)
            citizen.waits()
        rows = campaign(target, citizen, nowhere, asked.only, asked.every, asked.pairs)
        return min(1, report(rows, citizen.priority, asked.report))


if __name__ == "__main__":
    sys.exit(main())
