"""Trace records of several clients, and the notes read from them."""

import pytest

from rmqpy.protocol.traces import Note, joined, notes


def body(*lines: str) -> str:
    """Notes as they are sent: here with blanks between fields."""
    return "".join(line.replace(" ", "\x01") + "\x02" for line in lines)


SENT = Note("send", "ID1", 1000, "shop", "orders", "10.0.0.1:10911", "A-1", 3, "success")


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("Pub 1000 null shop orders ID1 paid A-1 10.0.0.1:10911 5 3 0 OFFSET true", SENT),
        # Java's 4.3 and earlier: no id of the broker.
        ("Pub 1000 null shop orders ID1 paid A-1 10.0.0.1:10911 5 3 0 true", SENT),
        # Go's: its own address behind.
        ("Pub 1000 null shop orders ID1 paid A-1 10.0.0.1:10911 5 3 0 OFFSET true 10.0.0.2", SENT),
        (
            "Pub 1000 null shop orders ID1 null null 10.0.0.1:10911 5 3 0 OFFSET false",
            SENT._replace(keys=None, outcome="failed"),
        ),
        (
            "SubBefore 1000 null billing REQ ID1 2 A-1",
            Note("consume", "ID1", 1000, "billing", keys="A-1", attempt=3, request="REQ"),
        ),
        (
            "SubAfter REQ ID1 7 false A-1 2 1009 billing",
            Note("consumed", "ID1", 1009, "billing", None, None, "A-1", 7, "exception", request="REQ"),
        ),
        # C++ and Java's older clients record neither time nor client.
        (
            "SubAfter REQ ID1 7 true A-1 0",
            Note("consumed", "ID1", keys="A-1", took_ms=7, outcome="success", request="REQ"),
        ),
        (
            "EndTransaction 1000 null shop orders ID1 paid A-1 10.0.0.1:10911 2 T1 COMMIT_MESSAGE false",
            Note(
                "end transaction", "ID1", 1000, "shop", "orders", "10.0.0.1:10911", "A-1", outcome="committed"
            ),
        ),
        (
            "Recall 1000 null shop orders ID1 true",
            Note("recall", "ID1", 1000, "shop", "orders", outcome="success"),
        ),
    ],
)
def test_each_kind_of_note_is_read(line: str, note: Note) -> None:
    assert list(notes(body(line))) == [note]


@pytest.mark.parametrize(
    "line",
    ["", "Pub", "Pub 1 2", "Pub x null shop orders ID1 paid A-1 h 5 3 0 O true", "New 1 2 3", "SubAfter R"],
)
def test_unreadable_record_is_skipped_alone(line: str) -> None:
    assert [note.what for note in notes(body(line, "Recall 1000 null shop orders ID1 true"))] == ["recall"]


def test_start_and_end_of_a_handler_call_are_one_step() -> None:
    found = list(
        notes(
            body(
                "SubAfter R2 ID1 9 true A-1 0 3009 billing",
                "SubBefore 2000 null billing R1 ID1 0 A-1",
                "SubAfter R1 ID1 5 false A-1 1 2005 billing",
                "SubBefore 3000 null billing R2 ID1 1 A-1",
                "SubBefore 4000 null audit R3 ID1 0 A-1",
                "Pub 1000 null shop orders ID1 paid A-1 h 5 3 0 O true",
            )
        )
    )
    steps = [(step.what, step.at_ms, step.attempt, step.took_ms, step.outcome) for step in joined(found)]
    assert steps == [
        ("send", 1000, None, 3, "success"),
        ("consume", 2000, 1, 5, "timeout"),
        ("consume", 3000, 2, 9, "success"),
        ("consume", 4000, 1, None, None),
    ]


def test_end_without_its_start_is_still_a_step() -> None:
    [step] = joined(list(notes(body("SubAfter R1 ID1 5 true A-1 0 2005 billing"))))
    assert (step.what, step.group, step.took_ms, step.outcome) == ("consume", "billing", 5, "success")
