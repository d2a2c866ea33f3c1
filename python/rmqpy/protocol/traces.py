"""Trace records: notes of clients about messages they sent and consumed.

Clients with tracing send records to a separate topic, many in one body: each ends with 0x02, its fields are separated
by 0x01, and absent ones are the word `null`. The number of fields depends on the client and its release; unknown ones
are skipped. rmqpy's records have the form of Java's 5.x clients. Pure; any thread.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

#: The region of brokers that name none.
DEFAULT_REGION: Final = "DefaultRegion"
#: The prefix of the groups of producers of traces.
PRODUCER_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"

_NOTE_END: Final = "\x02"
_FIELD_END: Final = "\x01"
_NULL: Final = "null"
#: Outcomes of a consumer's handler, by number.
_OUTCOMES: Final = ("success", "timeout", "exception", "no result", "failed")


class Note(NamedTuple):
    """One record: the start of an event, or its end with a result."""

    #: send, consume, end transaction, recall.
    what: str
    message_id: str
    #: ms since the epoch; None if the client does not report it.
    at_ms: int | None = None
    group: str | None = None
    topic: str | None = None
    broker: str | None = None
    keys: str | None = None
    took_ms: int | None = None
    #: None while the result is unknown.
    outcome: str | None = None
    #: The number of the delivery, from 1.
    attempt: int | None = None
    #: Shared by all records of one handler call.
    request: str | None = None


class SentKind(IntEnum):
    """Message type, by its number in records."""

    ORDINARY = 0
    HALF = 1
    DELAYED = 3


#: The end of a transaction has a number of that kind, too.
_END_OF_TRANSACTION: Final = 2


class ConsumeCode(IntEnum):
    """Result of a handler call, by its number in records: an index of `_OUTCOMES`."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    FAILED = 4


class SentNote(NamedTuple):
    """A producer's record of a stored message. Fields are in the order in which they are written."""

    at_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tag: str | None
    keys: str | None
    #: An address.
    broker: str | None
    body_bytes: int
    took_ms: int
    kind: SentKind
    offset_message_id: str
    is_success: bool

    def text(self) -> str:
        """The encoded record."""
        return _written("Pub", *self)


class BegunNote(NamedTuple):
    """A consumer's record of a message passed to its handler."""

    at_ms: int
    region: str
    group: str
    #: The id of the handler call.
    request: str
    message_id: str
    retries: int
    keys: str | None

    def text(self) -> str:
        """The encoded record."""
        return _written("SubBefore", *self)


class EndedNote(NamedTuple):
    """A consumer's record of the end of a handler call."""

    request: str
    message_id: str
    took_ms: int
    keys: str | None
    code: ConsumeCode
    at_ms: int
    group: str

    def text(self) -> str:
        """The encoded record: the success follows the duration."""
        return _written("SubAfter", *self[:3], self.code is ConsumeCode.SUCCESS, *self[3:])


class DecidedNote(NamedTuple):
    """A producer's record of the end of a transaction."""

    at_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tag: str | None
    keys: str | None
    #: An address.
    broker: str | None
    transaction_id: str | None
    #: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
    decision: str
    #: By the broker.
    is_asked: bool

    def text(self) -> str:
        """The encoded record: the message type follows the broker."""
        return _written("EndTransaction", *self[:8], _END_OF_TRANSACTION, *self[8:])


class RecalledNote(NamedTuple):
    """A producer's record of a recall."""

    at_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    is_success: bool

    def text(self) -> str:
        """The encoded record."""
        return _written("Recall", *self)


def notes(body: str) -> Iterator[Note]:
    """Parse the records of one body, skipping unreadable ones."""
    for text in body.split(_NOTE_END):
        fields = [None if field == _NULL else field for field in text.split(_FIELD_END)]
        read = _READERS.get(fields[0] or "")
        if read is not None:
            try:
                note = read(fields)
            except (ValueError, IndexError):
                continue
            if note.message_id:
                yield note


def joined(found: Sequence[Note]) -> list[Note]:
    """Join start and end of each handler call into one record; in order of time."""
    ends = {(note.request, note.message_id): note for note in found if note.what == "consumed"}
    begun = set()
    steps = []
    for note in found:
        key = (note.request, note.message_id)
        if note.what == "consume":
            begun.add(key)
            end = ends.get(key)
            steps.append(note._replace(took_ms=end.took_ms, outcome=end.outcome) if end else note)
        elif note.what != "consumed":
            steps.append(note)
    # The begin may be in a body that was lost, or has not arrived.
    steps += [note._replace(what="consume") for key, note in ends.items() if key not in begun]
    return sorted(steps, key=lambda note: note.at_ms or 0)


_Fields = list[str | None]


def _sent(fields: _Fields) -> Note:
    # 4.x clients wrote no broker's id before the result; Go's add their address after it.
    success = fields[13] if len(fields) > 13 else fields[12]
    return Note(
        "send",
        fields[5] or "",
        _number(fields[1]),
        fields[3],
        fields[4],
        fields[8],
        fields[7],
        _number(fields[10]),
        _outcome(success),
    )


def _begun(fields: _Fields) -> Note:
    retries = _number(fields[6]) or 0
    return Note(
        "consume",
        fields[5] or "",
        _number(fields[1]),
        fields[3],
        keys=fields[7],
        attempt=retries + 1,
        request=fields[4],
    )


def _ended(fields: _Fields) -> Note:
    code = _number(fields[6]) if len(fields) > 6 else None
    outcome = _OUTCOMES[code] if code is not None and 0 < code < len(_OUTCOMES) else _outcome(fields[4])
    return Note(
        "consumed",
        fields[2] or "",
        _number(fields[7]) if len(fields) > 7 else None,
        fields[8] if len(fields) > 8 else None,
        keys=fields[5],
        took_ms=_number(fields[3]),
        outcome=outcome,
        request=fields[1],
    )


def _decided(fields: _Fields) -> Note:
    decision = {"COMMIT_MESSAGE": "committed", "ROLLBACK_MESSAGE": "rolled back"}.get(
        fields[11] or "", "unknown"
    )
    return Note(
        "end transaction",
        fields[5] or "",
        _number(fields[1]),
        fields[3],
        fields[4],
        fields[8],
        fields[7],
        outcome=decision,
    )


def _recalled(fields: _Fields) -> Note:
    return Note(
        "recall", fields[5] or "", _number(fields[1]), fields[3], fields[4], outcome=_outcome(fields[6])
    )


_READERS: Final = {
    "Pub": _sent,
    "SubBefore": _begun,
    "SubAfter": _ended,
    "EndTransaction": _decided,
    "Recall": _recalled,
}


def keys_field(keys: Sequence[str]) -> str | None:
    """The keys of a message in a record."""
    return " ".join(keys) or None


def _written(*fields: str | int | bool | None) -> str:
    return _FIELD_END.join(map(_text, fields)) + _NOTE_END


def _text(field: str | int | bool | None) -> str:
    if field is None:
        return _NULL
    return ("true" if field else "false") if isinstance(field, bool) else str(field)


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _outcome(success: str | None) -> str:
    return "success" if success == "true" else "failed"
