"""Notes on the writes of a micro-batch, without Spark."""

from pathlib import Path

import pytest

from pyspark_rocketmq import writes
from pyspark_rocketmq.writes import MicroBatchWrite, note, noted, numbered
from rmqpy.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Spark's notes."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    return tmp_path


def number(query: str, execution: str, topic: str) -> int:
    return numbered(MicroBatchWrite(query, execution, topic), noted()).number


def write(query: str, execution: str, topic: str) -> int:
    """One after the other, as in `foreachBatch`; the number it had."""
    this = numbered(MicroBatchWrite(query, execution, topic), noted())
    note(this)
    return this.number


def test_writes_are_numbered_by_topic_and_attempt() -> None:
    assert [write("q", "7", "orders"), write("q", "7", "orders"), write("q", "7", "%RETRY%g,1")] == [0, 1, 0]
    assert [write("other", "7", "orders"), write("q", "7", "orders")] == [0, 2]
    # The micro-batch is repeated: as before.
    assert [write("q", "9", "orders"), write("q", "9", "orders")] == [0, 1]


def test_failed_write_is_not_counted() -> None:
    assert number("q", "7", "orders") == number("q", "7", "orders") == 0


def test_writes_that_overlap_are_refused() -> None:
    this = numbered(MicroBatchWrite("q", "7", "orders"), noted())
    note(this)
    with pytest.raises(ConfigError, match="two writes to orders overlapped in one micro-batch"):
        note(this)


def test_notes_are_kept_for_the_last_attempts_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "NOTES_MAX", 3)
    for execution in range(5):
        write("q", str(execution), "orders")
        write("q", str(execution), "orders")
    assert len(list((folder / "rmqpy-writes").iterdir())) == 2
    for query in range(5):
        write(str(query), "99", "orders")
    assert len(list((folder / "rmqpy-writes").iterdir())) == 3
    assert number("4", "99", "orders") == 1


def test_writes_without_a_folder_cannot_be_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert number("q", "7", "orders") == 0
    with pytest.raises(ConfigError, match="SPARK_LOCAL_DIRS is not set"):
        write("q", "7", "orders")
