"""`rmqpy store` on folders of stopped and running brokers."""

import asyncio
import json
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy import cli
from rmqpy._native import StoppedStore
from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.config.store import StoreConfig
from rmqpy.errors import ConfigError, StoreError
from rmqpy.server import Standalone

#: Small files, the same for the broker and for inspections of its folder.
SETTINGS = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "50",
    "maxIndexNum": "200",
}
WORDS = [f"{key}={value}" for key, value in SETTINGS.items()]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of a broker that was stopped: 120 messages of two topics."""
    folder = tmp_path / "data"
    with serving(folder) as server, rmqpy.Producer(server.namesrv) as producer:
        for number in range(100):
            message = rmqpy.Message("orders", b"x" * 500, tag="paid", keys=[f"order-{number}"])
            producer.send(message)
        for number in range(20):
            producer.send(rmqpy.Message("greetings", f"grüße {number}".encode()))
    return folder


def serving(folder: Path) -> Standalone:
    return Standalone(folder, namesrv_port=0, broker_port=0, **SETTINGS)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("verify", folder, …)`: exit code, stdout, stderr."""

    def run(name: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
        code = cli.run(["store", name, str(folder), *WORDS, *arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


def files_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def damage(data: Path, at: int = 20_000) -> None:
    """Another byte in the body of a message."""
    log = data / "store" / "commitlog" / f"{0:020}"
    with log.open("r+b") as file:
        body = log.read_bytes().index(b"x" * 400, at)
        file.seek(body + 50)
        file.write(b"y")


def test_verifying_a_good_store_changes_no_file(data: Path, run: Run) -> None:
    before = files_of(data)
    code, out, _ = run("verify", data, "-o", "json")
    report = json.loads(out)
    assert (code, report["damage"], report["notes"], report["findings"]) == (0, 0, 0, [])
    assert (report["records"], report["is_aborted"]) == (120, False)
    # A unique key each, and of the orders a key and a tag, too.
    assert report["keys"] == 100 * 3 + 20
    assert run("verify", data)[1].endswith("clean\n")
    for name in ("dump", "stats"):
        assert run(name, data)[0] == 0
    assert files_of(data) == before


def test_damage_exits_with_1_and_names_its_place(data: Path, run: Run) -> None:
    damage(data)
    code, out, _ = run("verify", data)
    assert code == 1
    assert "damage: record: " in out
    assert "does not match its CRC" in out
    code, _, err = run("dump", data, "-o", "jsonl")
    assert code == 1
    assert "no record from" in err


def test_open_store_is_refused_to_tools_and_brokers(data: Path, run: Run) -> None:
    with serving(data):
        for name in ("verify", "dump", "stats", "index-rebuild", "drain"):
            code, out, err = run(name, data)
            assert (code, out) == (1, "")
            assert "locked by another broker" in err
    config = StoreConfig(root=str(data / "store"))
    held, second = StoppedStore(config), StoppedStore(config)
    with pytest.raises(StoreError, match="locked"), serving(data):
        pass
    assert run("index-rebuild", data)[0] == 1
    held.release()
    second.release()
    with serving(data):
        pass


def test_cleanly_stopped_store_has_nothing_to_drain(data: Path, run: Run) -> None:
    code, out, _ = run("drain", data)
    assert code == 0
    assert "the write ring was empty" in out


def test_folder_without_a_store_is_refused(tmp_path: Path, run: Run) -> None:
    code, _, err = run("verify", tmp_path)
    assert code == 1
    assert "contains commitlog" in err


def test_other_file_sizes_are_reported(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["store", "verify", str(data)]) == 1
    assert "maxHashSlotNum" in capfd.readouterr().out


def test_dump_has_the_requested_records(data: Path, run: Run) -> None:
    def offsets(*arguments: str) -> list[tuple[int, int]]:
        code, out, _ = run("dump", data, "-o", "jsonl", *arguments)
        assert code == 0
        return [(row["queue"], row["offset"]) for row in map(json.loads, out.splitlines())]

    everything = offsets()
    assert len(everything) == 120
    assert len(offsets("--topic", "greetings")) == 20
    assert offsets("--topic", "orders", "--queue", "1", "--offsets", "2:5") == [(1, 2), (1, 3), (1, 4)]
    assert len(offsets("--count", "7")) == 7
    _, out, _ = run("dump", data, "-o", "json", "--topic", "greetings", "--count", "1")
    (row,) = json.loads(out)
    assert (row["body"], row["topic"], row["flag"]) == ("grüße 0", "greetings", 0)
    position = row["position"]
    assert offsets("--positions", f"{position}:{position + 1}") == [(row["queue"], row["offset"])]
    assert len(offsets("--positions", f":{position}")) == 100
    assert len(offsets("--positions", f"{position + 1}:")) == 19


def test_stats_count_every_topic(data: Path, run: Run) -> None:
    code, out, _ = run("stats", data, "-o", "json")
    rows = {row["topic"]: row for row in json.loads(out)}
    assert code == 0
    assert {topic: row["messages"] for topic, row in rows.items()} == {"orders": 100, "greetings": 20}
    assert rows["orders"]["body_bytes"] == 50_000
    assert rows["orders"]["first_stored"] <= rows["orders"]["last_stored"]


def test_index_is_rebuilt(data: Path, run: Run) -> None:
    for file in (data / "store" / "index").iterdir():
        file.unlink()
    code, out, _ = run("verify", data)
    assert "the index is empty; run index-rebuild" in out
    code, out, _ = run("index-rebuild", data, "-o", "json")
    assert (code, json.loads(out)["records"]) == (0, 120)
    assert json.loads(run("verify", data, "-o", "json")[1])["findings"] == []
    assert not (data / "store" / "index.new").exists()


def test_copy_of_a_damaged_store_serves_its_intact_records(data: Path, run: Run, tmp_path: Path) -> None:
    damage(data)
    code, out, _ = run("copy", data, "--to", str(tmp_path / "copy"), "-o", "json")
    copied = json.loads(out)
    assert (code, copied["records"], copied["gaps"], copied["left_out"]) == (1, 119, 1, 0)
    _, out, _ = run("dump", data, "-o", "jsonl")
    kept: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    _, out, _ = run("dump", tmp_path / "copy", "-o", "jsonl")
    found: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    # A record keeps everything but its place.
    place = {"position", "offset_message_id"}
    assert [row | dict.fromkeys(place) for row in found] == [row | dict.fromkeys(place) for row in kept]
    with (
        serving(tmp_path / "copy") as server,
        rmqpy.PullConsumer("readers", server.namesrv, auto_commit=False, start_from="earliest") as consumer,
    ):
        consumer.assign(consumer.queues("greetings"))
        assert consumer.poll(timeout=30.0)
    code, _, err = run("copy", data, "--to", str(tmp_path / "copy"))
    assert code == 2
    assert "an empty folder" in err
    code, _, err = run("copy", data / "store", "--to", str(tmp_path / "copy" / "store"))
    assert code == 1
    assert "an empty folder" in err


def test_copy_is_served_by_the_command_it_prints(data: Path, run: Run, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    code, _, err = run("copy", data, "--to", str(target))
    assert (code, err.splitlines()[-1]) == (0, f"serve it with: rmqpy standalone --data-dir {target}")
    with serving(target) as server, rmqpy.Admin(server.namesrv) as admin:
        assert {"orders", "greetings"} <= set(admin.topics())
    code, _, err = run("copy", data / "store", "--to", str(tmp_path / "root"))
    assert (code, err.splitlines()[-1]) == (
        0,
        f"serve it with: rmqpy broker storePathRootDir={tmp_path / 'root'}",
    )


def test_a_copy_has_the_tables_of_the_name_server(data: Path, run: Run, tmp_path: Path) -> None:
    (data / "namesrv").mkdir(exist_ok=True)
    table = data / "namesrv" / "kvConfig.json"
    table.write_text('{"configTable":{"n":{"k":"v"}}}')
    table.chmod(0o600)
    assert run("copy", data, "--to", str(tmp_path / "copy"))[0] == 0
    copied = tmp_path / "copy" / "namesrv" / "kvConfig.json"
    assert (copied.read_text(), copied.stat().st_mode) == (table.read_text(), table.stat().st_mode)


def test_folder_of_the_other_layout_is_refused_unchanged(data: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (data / "store").rename(root)
    before = sorted(root.rglob("*"))
    with pytest.raises(ConfigError, match=f"rmqpy broker storePathRootDir={root}"), serving(root):
        pass
    assert sorted(root.rglob("*")) == before
    root.rename(data / "store")
    given = {"storePathRootDir": str(data), "listenPort": "0", "namesrvAddr": "127.0.0.1:1", **SETTINGS}
    broker = Broker(broker_config.read(given).config)
    with pytest.raises(ConfigError, match=f"set storePathRootDir={data / 'store'}"):
        asyncio.run(broker.start())
    assert {path.name for path in data.iterdir()} <= {"store", "namesrv"}


def test_a_copy_of_some_topics_has_no_others(data: Path, run: Run, tmp_path: Path) -> None:
    target = tmp_path / "some"
    code, out, _ = run("copy", data / "store", "--to", str(target), "--topic", "greetings", "-o", "json")
    copied = json.loads(out)
    assert (code, copied["records"], copied["left_out"]) == (0, 20, 100)
    assert json.loads(run("verify", target, "-o", "json")[1])["findings"] == []
    assert (target / "config" / "topics.json").read_bytes() == (
        data / "store" / "config" / "topics.json"
    ).read_bytes()
    # The copy's log describes its own location.
    log = (target / "commitlog" / f"{0:020}").read_bytes()
    (size,) = struct.unpack_from(">i", log)
    assert struct.unpack_from(">q", log, 28) == (0,)
    assert struct.unpack_from(">q", log, size + 28) == (size,)


def compare(one: Path, other: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capfd.readouterr()
    code = cli.run(["store", "compare", str(one), str(other), "-o", "json"])
    return code, json.loads(capfd.readouterr().out)


def test_comparison_names_the_first_differing_byte(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    assert cli.run(["store", "compare", str(data), str(other)]) == 0
    damage(other)
    log = f"{0:020}"
    pairs = zip(
        *((folder / "store" / "commitlog" / log).read_bytes() for folder in (data, other)), strict=True
    )
    differs_at = next(at for at, (one, two) in enumerate(pairs) if one != two)
    code, found = compare(data, other, capfd)
    assert (code, found["differs_at"], found["file"]) == (1, differs_at, f"{log}+{differs_at}")


def test_log_that_continues_another_has_no_difference(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(data, tmp_path / "other")
    with serving(data) as server, rmqpy.Producer(server.namesrv) as producer:
        producer.send(rmqpy.Message("orders", b"one more"))
    code, found = compare(data, tmp_path / "other", capfd)
    assert (code, found["differs_at"], found["equal_until"]) == (1, None, found["other_end"])
    assert found["end"] > found["other_end"]


@pytest.mark.parametrize("keep", [1, 30, 90])
def test_truncated_log_is_recovered_at_its_new_end(data: Path, run: Run, keep: int) -> None:
    rows = [json.loads(line) for line in run("dump", data, "-o", "jsonl")[1].splitlines()]
    position = rows[keep]["position"]
    config = StoreConfig(root=str(data / "store"), segment_bytes=65536)
    store = StoppedStore(config, exclusive=True)
    store.cut(position)
    store.cut(position)
    store.release()
    ends = Counter(row["queue"] for row in rows[:keep] if row["topic"] == "orders")
    with serving(data) as server, rmqpy.Producer(server.namesrv) as producer:
        for _ in range(12):
            sent = producer.send(rmqpy.Message("orders", b"instead"))
            assert sent.queue_offset == ends[sent.queue.queue_id]
            ends[sent.queue.queue_id] += 1
    assert run("verify", data)[0] == 0
