"""Plans for static topics: the brokers of logical queues before and after a change. Pure; any thread.

A plan is the whole mapping of a topic, over all brokers. `grown` adds queues, `moved` moves some to other brokers: each
gets a segment that is decided once the old one has stopped growing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rmqpy.protocol.static_topics import SCOPE, UNDECIDED, Segment, TopicMapping, led_by, logical

#: A mapping's epoch grows by at least this much, as with Apache's tool.
EPOCH_STEP: Final = 1_000
#: Logical offsets of a new segment begin at a multiple of this, at least half of it after the old one.
BLOCK: Final = 10_000


@dataclass(frozen=True, slots=True)
class StaticLayout:
    """The mapping of a static topic over all brokers."""

    topic: str
    epoch: int
    total: int
    #: Logical queue → segments, oldest first; empty for one without a broker.
    queues: Mapping[int, Sequence[Segment]]
    #: Broker → number of local queues of the topic.
    local: Mapping[str, int]

    def leader(self, queue: int) -> str | None:
        """Return the broker that leads a queue."""
        segments = self.queues.get(queue, ())
        return segments[-1].bname if segments else None

    def undecided(self) -> list[int]:
        """Return the moved queues whose newest segment has no first offset yet."""
        return [
            number for number, segments in self.queues.items() if segments and not segments[-1].is_decided
        ]

    def mapping(self, broker: str) -> TopicMapping:
        """Return the mapping of one broker: the queues that it has a segment of."""
        hosted = {
            number: list(segments)
            for number, segments in sorted(self.queues.items())
            if any(segment.bname == broker for segment in segments)
        }
        return TopicMapping(
            topic=self.topic,
            total_queues=self.total,
            bname=broker,
            epoch=self.epoch,
            scope=SCOPE,
            curr_id_map=led_by(broker, hosted),
            hosted_queues=hosted,
        )


def layout_of(topic: str, mappings: Iterable[TopicMapping], local: Mapping[str, int]) -> StaticLayout:
    """Return the layout that the mappings of all brokers form. After a change that stopped halfway they differ: for
    each queue, the list with the newest segment counts, and a decided segment more than the same one undecided."""
    found = list(mappings)
    queues: dict[int, Sequence[Segment]] = {}
    for mapping in found:
        for number, segments in mapping.hosted_queues.items():
            if segments and _rank(segments) > _rank(queues.get(number, ())):
                queues[number] = segments
    total = max((mapping.total_queues for mapping in found), default=0)
    epoch = max((mapping.epoch for mapping in found), default=0)
    return StaticLayout(topic, epoch, total, queues, local)


def _rank(segments: Sequence[Segment]) -> tuple[int, bool, int]:
    return (segments[-1].gen, segments[-1].is_decided, len(segments)) if segments else (-1, False, 0)


def grown(layout: StaticLayout, total: int, brokers: Sequence[str], now_ms: int) -> StaticLayout:
    """Return the layout with `total` queues; each new one goes to the broker that leads the fewest."""
    led = dict.fromkeys(brokers, 0)
    for number in layout.queues:
        if (leader := layout.leader(number) or "") in led:
            led[leader] += 1
    queues, local = dict(layout.queues), dict(layout.local)
    for number in range(total):
        if not queues.get(number):
            broker = min(sorted(led), key=led.__getitem__)
            queues[number] = (_added(broker, local, gen=0, logic_offset=0),)
            led[broker] += 1
    return replace(
        layout,
        epoch=_next_epoch(layout, now_ms),
        total=total,
        queues=dict(sorted(queues.items())),
        local=local,
    )


def moved(layout: StaticLayout, brokers: Sequence[str], now_ms: int) -> StaticLayout:
    """Return the layout with all queues spread evenly over these brokers, with as few moves as possible. Queues whose
    newest segment is not decided stay."""
    least, more = divmod(len(layout.queues), len(brokers))
    led: dict[str, list[int]] = {broker: [] for broker in brokers}
    homeless = []
    for number in sorted(layout.queues):
        leader = layout.leader(number) or ""
        if leader in led:
            led[leader].append(number)
        elif layout.queues[number][-1].is_decided:
            homeless.append(number)
    # Brokers that lead many keep one more than the others.
    by_count = sorted(brokers, key=lambda broker: (-len(led[broker]), broker))
    room = {broker: least + (1 if index < more else 0) for index, broker in enumerate(by_count)}
    for broker in brokers:
        movable = [number for number in led[broker] if layout.queues[number][-1].is_decided]
        surplus = max(0, len(led[broker]) - room[broker])
        homeless += movable[len(movable) - surplus :] if surplus else []
        room[broker] -= len(led[broker]) - min(surplus, len(movable))
    queues, local = dict(layout.queues), dict(layout.local)
    for number in sorted(homeless):
        broker = max(sorted(room), key=room.__getitem__)
        room[broker] -= 1
        segments = queues[number]
        added = _added(broker, local, gen=segments[-1].gen + 1, logic_offset=UNDECIDED)
        queues[number] = (*segments, added)
    return replace(layout, epoch=_next_epoch(layout, now_ms), queues=queues, local=local)


def decided(layout: StaticLayout, ends: Mapping[int, int]) -> StaticLayout:
    """Return the layout with a first offset for moved queues, given the local ends of their old segments."""
    queues = dict(layout.queues)
    for number, end in ends.items():
        *older, newest = queues[number]
        start = first_offset(logical(older[-1], end))
        queues[number] = (*older, replace(newest, logic_offset=start))
    return replace(layout, queues=queues)


def first_offset(end: int) -> int:
    """Return the first logical offset of a segment behind a segment that ended at `end`. The gap leaves room for sends
    that were in progress.

    >>> first_offset(0), first_offset(4_999), first_offset(5_000), first_offset(10_000)
    (10000, 10000, 20000, 20000)
    """
    blocks, rest = divmod(end, BLOCK)
    return (blocks + (1 if rest < BLOCK // 2 else 2)) * BLOCK


def _added(broker: str, local: dict[str, int], *, gen: int, logic_offset: int) -> Segment:
    """Return a segment in another queue of this broker."""
    queue_id = local.get(broker, 0)
    local[broker] = queue_id + 1
    return Segment(bname=broker, queue_id=queue_id, gen=gen, logic_offset=logic_offset)


def _next_epoch(layout: StaticLayout, now_ms: int) -> int:
    return max(layout.epoch + EPOCH_STEP, now_ms)
