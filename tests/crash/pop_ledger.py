"""Deliveries of popped messages, read from the notes of all workers, and what a kill may repeat.

A message may come again only if its delivery before was open when its worker or its broker was killed, if the worker
forgot it, or if its acknowledgement came too late. It may not come again after an acknowledgement in time.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

#: An acknowledgement answered less than this before the end of the invisible time counts as late.
MARGIN_MS = 500


class Kill(NamedTuple):
    """The death of a process: of one with workers, or of the broker."""

    at_ms: int
    #: Name of the notes of the workers; `None` is the broker.
    workers: str | None = None


@dataclass
class Delivery:
    """A message in the hands of a worker."""

    name: str
    queue_id: int
    offset: int
    popped_ms: int
    workers: str
    acknowledged_ms: int | None = None
    is_forgotten: bool = False

    def is_in_time(self, invisible_ms: int) -> bool:
        due = self.popped_ms + invisible_ms - MARGIN_MS
        return self.acknowledged_ms is not None and self.acknowledged_ms < due

    def was_open_at(self, kill: Kill, invisible_ms: int) -> bool:
        return (
            kill.workers in (None, self.workers)
            and self.popped_ms <= kill.at_ms <= self.popped_ms + invisible_ms
            and (self.acknowledged_ms is None or self.acknowledged_ms >= kill.at_ms)
        )


@dataclass
class Ledger:
    """All deliveries, by message, in the order of their pops."""

    invisible_ms: int
    kills: list[Kill]
    deliveries: dict[str, list[Delivery]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, invisible_ms: int, kills: list[Kill]) -> "Ledger":
        found: dict[str, list[Delivery]] = defaultdict(list)
        for file in folder.iterdir():
            for delivery in _read(file):
                found[delivery.name].append(delivery)
        for of_one in found.values():
            of_one.sort(key=lambda each: each.popped_ms)
        return cls(invisible_ms, kills, dict(found))

    def after_acknowledgement(self) -> list[Delivery]:
        """Deliveries after an acknowledgement in time was answered."""
        late = []
        for of_one in self.deliveries.values():
            done = [each.acknowledged_ms for each in of_one if each.is_in_time(self.invisible_ms)]
            late += [each for each in of_one if any(ms is not None and ms < each.popped_ms for ms in done)]
        return late

    def in_flight_at_kills(self) -> int:
        """Deliveries that were open when their worker or the broker was killed."""
        return sum(self._was_killed(each) for of_one in self.deliveries.values() for each in of_one)

    def repeats(self) -> dict[str, int]:
        """Deliveries after the first one, by the reason why the one before was open."""
        counts = {"killed": 0, "forgotten": 0, "acknowledged late": 0, "without a reason": 0}
        for of_one in self.deliveries.values():
            for before in of_one[:-1]:
                counts[self._reason(before)] += 1
        return counts

    def out_of_order(self) -> list[str]:
        """First deliveries of a queue that came before that of an earlier message."""
        of_queues: dict[int, list[Delivery]] = defaultdict(list)
        for of_one in self.deliveries.values():
            for each in of_one:
                of_queues[each.queue_id].append(each)
        found = []
        for queue_id, deliveries in of_queues.items():
            expected = 0
            for each in sorted(deliveries, key=lambda each: (each.popped_ms, each.offset)):
                if each.offset > expected:
                    found.append(f"queue {queue_id}: {each.offset} before {expected}")
                expected = max(expected, each.offset + 1)
        return found

    def _reason(self, open_one: Delivery) -> str:
        if open_one.is_forgotten:
            return "forgotten"
        if self._was_killed(open_one):
            return "killed"
        if open_one.acknowledged_ms is not None and not open_one.is_in_time(self.invisible_ms):
            return "acknowledged late"
        return "without a reason"

    def _was_killed(self, delivery: Delivery) -> bool:
        return any(delivery.was_open_at(kill, self.invisible_ms) for kill in self.kills)


def _read(file: Path) -> Iterator[Delivery]:
    """The deliveries to the workers of a process."""
    found: dict[tuple[str, int], Delivery] = {}
    for line in file.read_text().splitlines():
        event, rows, *at = json.loads(line)
        if event == "popped":
            for name, queue_id, offset, popped_ms in rows:
                delivery = Delivery(name, queue_id, offset, popped_ms, file.name)
                found[name, popped_ms] = delivery
            continue
        for name, popped_ms in rows:
            if event == "forgotten":
                found[name, popped_ms].is_forgotten = True
            else:
                [found[name, popped_ms].acknowledged_ms] = at
    yield from found.values()


def names(bodies: Iterable[bytes]) -> set[str]:
    """Names of the messages with these bodies."""
    return {b"/".join(body.split(b"/")[:2]).decode() for body in bodies}
