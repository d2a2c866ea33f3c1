"""Static topics: logical queues that are numbered over all brokers, and their mapping to queues of brokers.

A logical queue is a list of segments, oldest first, each a queue of one broker. The broker of the newest segment leads
the queue. Logical and local offsets differ by a constant in each segment. Every broker of the topic has the mapping of
its logical queues; versions of a mapping are ordered by their epoch.

Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from rmqpy.protocol.declare import Resource, record

#: The scope of every mapping so far, and the prefix of the name that clients use instead of a broker's.
SCOPE: Final = "__global__"
_PSEUDO_BROKER: Final = "__syslo__"
#: The pseudo broker of queues without a leader; it has no address.
LEADERLESS: Final = "__syslo__none__"
#: A segment's first logical offset before it is decided.
UNDECIDED: Final = -1
#: The most logical queues of a topic, and segments of a queue.
QUEUES_MAX: Final = 16_384
SEGMENTS_MAX: Final = 1_024
_NUMBER_MAX: Final = (1 << 31) - 1


@record
class Segment:
    """A part of a logical queue, in a queue of one broker. The end and the times are never decided."""

    bname: str
    queue_id: int
    #: The generation, which grows with each move.
    gen: int = 0
    logic_offset: int = UNDECIDED
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1

    @property
    def is_decided(self) -> bool:
        """Whether the first logical offset is known."""
        return self.logic_offset >= 0


@record
class TopicMappingInfo:
    """The mapping of a topic at one broker, as name servers keep it."""

    topic: Resource = ""
    total_queues: int = 0
    bname: str = ""
    epoch: int = 0
    scope: str = SCOPE
    dirty: bool = False
    #: Logical queue → local queue, of those that the broker leads.
    curr_id_map: dict[int, int] = field(default_factory=dict)


@record
class TopicMapping(TopicMappingInfo):
    """The mapping of a topic at one broker, with the segments."""

    #: Logical queue → segments, oldest first.
    hosted_queues: dict[int, list[Segment]] = field(default_factory=dict)

    def info(self) -> TopicMappingInfo:
        """Return the form for name servers."""
        return TopicMappingInfo(
            topic=self.topic,
            total_queues=self.total_queues,
            bname=self.bname,
            epoch=self.epoch,
            scope=self.scope,
            curr_id_map=led_by(self.bname, self.hosted_queues),
        )


def pseudo_broker(scope: str) -> str:
    """Return the name that clients use for the broker of a logical queue.

    >>> pseudo_broker("__global__")
    '__syslo__global__'
    """
    return f"{_PSEUDO_BROKER}{scope[2:]}"


def is_pseudo_broker(name: str) -> bool:
    """Return whether a broker's name stands for the leaders of logical queues."""
    return name.startswith(_PSEUDO_BROKER)


def led_by(broker: str, queues: Mapping[int, Sequence[Segment]]) -> dict[int, int]:
    """Return the logical queues that a broker leads, with its own queues."""
    return {
        number: segments[-1].queue_id
        for number, segments in queues.items()
        if segments and segments[-1].bname == broker
    }


def leaders(mappings: Iterable[TopicMappingInfo]) -> dict[str, list[str]]:
    """Return the leader of each logical queue by scope; empty without one.

    The mappings of the newest epoch say how many queues there are. An older mapping counts for queues that no newer one
    has: its broker has not registered the new one yet.
    """
    found: dict[str, list[str]] = {}
    newest_first = sorted(mappings, key=lambda mapping: (-mapping.epoch, mapping.bname))
    epochs: dict[str, int] = {}
    for mapping in newest_first:
        queues = found.setdefault(mapping.scope, [])
        if mapping.epoch >= epochs.setdefault(mapping.scope, mapping.epoch):
            missing = min(mapping.total_queues, QUEUES_MAX) - len(queues)
            queues += [""] * max(0, missing)
        for number in mapping.curr_id_map:
            if 0 <= number < len(queues) and not queues[number]:
                queues[number] = mapping.bname
    return found


def logical(segment: Segment, local: int) -> int:
    """Return the logical offset of a local one; -1 while the segment is not decided.

    >>> logical(Segment(bname="b", queue_id=0, logic_offset=10_000), 7)
    10007
    """
    if not segment.is_decided:
        return UNDECIDED
    return segment.logic_offset + max(0, local - segment.start_offset)


def local(segment: Segment, offset: int) -> int:
    """Return the local offset of a logical one."""
    return segment.start_offset + max(0, offset - segment.logic_offset)


def segment_at(segments: Sequence[Segment], offset: int) -> int | None:
    """Return the index of the segment of a logical offset: the newest decided one with its start at or below it, or the
    oldest decided one."""
    decided = [index for index, segment in enumerate(segments) if segment.is_decided]
    below = [index for index in decided if segments[index].logic_offset <= offset]
    return below[-1] if below else (decided[0] if decided else None)


def fault(mapping: TopicMapping, broker: str) -> str | None:
    """Return the first error in a mapping for this broker, or `None`."""
    if mapping.bname != broker:
        return f"the mapping is of broker {mapping.bname}, not of {broker}"
    if not (0 <= mapping.total_queues <= QUEUES_MAX):
        return f"a static topic has from 0 to {QUEUES_MAX} queues, not {mapping.total_queues}"
    if not mapping.scope.startswith("__"):
        return f"the scope {mapping.scope[:80]} does not begin with two underscores"
    for number, segments in mapping.hosted_queues.items():
        if not (0 <= number < mapping.total_queues):
            return f"queue {number} is not below {mapping.total_queues}"
        if error := _fault_of_segments(segments):
            return f"queue {number}: {error}"
    return None


def _fault_of_segments(segments: Sequence[Segment]) -> str | None:
    if len(segments) > SEGMENTS_MAX:
        return f"it has more than {SEGMENTS_MAX} segments"
    before: Segment | None = None
    for index, segment in enumerate(segments):
        numbers = (segment.gen, segment.queue_id, segment.start_offset)
        if min(numbers) < 0 or max(segment.gen, segment.queue_id) > _NUMBER_MAX:
            return "a generation, queue or start is out of range"
        if not segment.is_decided and index + 1 < len(segments):
            return "only the newest segment may be undecided"
        if 0 <= segment.end_offset < segment.start_offset:
            return "a segment ends before its start"
        if before is not None:
            if segment.gen <= before.gen:
                return "the generations do not grow"
            if segment.is_decided and segment.logic_offset <= before.logic_offset:
                return "the logical offsets do not grow"
        before = segment
    return None


def merged(known: TopicMapping | None, wanted: TopicMapping, *, is_forced: bool) -> TopicMapping:
    """Return the mapping to store. Queues that the new one lacks are kept. Raises `ValueError` with the reason for a
    refusal: an outdated epoch, or a change of what messages already depend on."""
    if known is not None and not is_forced:
        _check_change(known, wanted)
    queues = {**(known.hosted_queues if known else {}), **wanted.hosted_queues}
    return replace(
        wanted,
        hosted_queues=dict(sorted(queues.items())),
        curr_id_map=led_by(wanted.bname, queues),
        dirty=False,
    )


def _check_change(known: TopicMapping, wanted: TopicMapping) -> None:
    if wanted.epoch < known.epoch:
        raise ValueError(f"Can't accept data with small epoch {wanted.epoch} < {known.epoch}")
    if wanted.scope != known.scope:
        raise ValueError(f"the scope cannot change from {known.scope} to {wanted.scope}")
    for number, segments in known.hosted_queues.items():
        changed = wanted.hosted_queues.get(number)
        if changed is None:
            if wanted.epoch == known.epoch:
                raise ValueError("Cannot accept equal epoch with null data")
            continue
        if segments and not changed:
            raise ValueError(f"queue {number} cannot lose its segments")
        if wanted.epoch == known.epoch and segments and segments[-1].bname != changed[-1].bname:
            raise ValueError("The new leader is different but epoch equal")
        by_gen = {segment.gen: segment for segment in changed}
        for segment in segments:
            after = by_gen.get(segment.gen, segment)
            if (after.bname, after.queue_id, after.start_offset) != (
                segment.bname,
                segment.queue_id,
                segment.start_offset,
            ) or (segment.is_decided and after.logic_offset != segment.logic_offset):
                raise ValueError(f"queue {number}: segment {segment.gen} cannot change")
