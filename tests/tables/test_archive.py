"""Archives: tables after runs, after crashes at every step, and after kills."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqpy
import rmqpy.testing
from commandline import Run, runner
from rmqpy.errors import ConfigError
from rmqpy.server import Standalone
from rmqpy.tables.archive import parquet as parquet_archive
from rmqpy.tables.archive.run import Archived, open_archive

pa = pytest.importorskip("pyarrow")

FORMATS = ["parquet", pytest.param("delta", marks=pytest.mark.skipif("not has_delta()"))]


def has_delta() -> bool:
    from importlib.util import find_spec

    return find_spec("deltalake") is not None


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    """A broker."""
    with rmqpy.testing.broker() as server:
        yield server


@pytest.fixture
def topic(server: Standalone, request: pytest.FixtureRequest) -> str:
    """A topic of the test."""
    name = request.node.name.replace("[", "-").rstrip("]")
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(name)
    return str(name)


def send(server: Standalone, topic: str, first: int, count: int) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for future in [producer.submit(topic, f'{{"n": {first + at}}}') for at in range(count)]:
            future.result()


def archived(folder: Path, kind: str) -> list[bytes]:
    """The bodies in a table, as a reader of files sees them."""
    if kind == "delta":
        import deltalake

        if not deltalake.DeltaTable.is_deltatable(str(folder)):
            return []
        table = pa.table(deltalake.DeltaTable(str(folder)).to_pyarrow_table())
    else:
        import pyarrow.dataset

        files = sorted(map(str, folder.rglob("*.parquet")))
        if not files:
            return []
        table = pyarrow.dataset.dataset(files, format="parquet").to_table()
    return list(table.column("body").to_pylist())


def expected(count: int) -> Counter[bytes]:
    return Counter(f'{{"n": {at}}}'.encode() for at in range(count))


def run(server: Standalone, topic: str, folder: Path, kind: str, **options: Any) -> Archived:
    archive = open_archive(topic, str(folder), server.namesrv, format=kind, **options)
    try:
        return archive.run()
    finally:
        archive.close()


@pytest.mark.parametrize("kind", FORMATS)
def test_each_run_goes_on_where_the_last_one_ended(
    server: Standalone, topic: str, kind: str, tmp_path: Path
) -> None:
    send(server, topic, 0, 500)
    assert run(server, topic, tmp_path, kind).messages == 500
    assert run(server, topic, tmp_path, kind) == Archived(0, 0, 0)
    send(server, topic, 500, 300)
    assert run(server, topic, tmp_path, kind, commit_bytes=10_000).messages == 300
    assert Counter(archived(tmp_path, kind)) == expected(800)


@pytest.mark.parametrize("kind", FORMATS)
def test_partitions_are_hours_of_the_store_time(
    server: Standalone, topic: str, kind: str, tmp_path: Path
) -> None:
    duckdb = pytest.importorskip("duckdb")
    send(server, topic, 0, 20)
    run(server, topic, tmp_path, kind)
    found = duckdb.sql(
        f"select count(*), count(*) filter (date::varchar = strftime(storeTimestamp at time zone 'UTC', '%Y-%m-%d') "
        f"and hour::int = hour(storeTimestamp at time zone 'UTC')) "
        f"from read_parquet('{tmp_path}/*/*/*.parquet', hive_partitioning = true)"
    ).fetchall()
    assert found == [(20, 20)]


@pytest.mark.parametrize("kind", FORMATS[1:])
def test_second_archiver_is_refused_at_its_commit(
    server: Standalone, topic: str, kind: str, tmp_path: Path
) -> None:
    """Also if the first has committed since the second began, and both would commit without a conflict of files."""
    send(server, topic, 0, 10)
    run(server, topic, tmp_path / "existing", kind)
    send(server, topic, 10, 10)
    for folder in (tmp_path / "existing", tmp_path / "new"):
        late = open_archive(topic, str(folder), server.namesrv, format=kind)
        assert run(server, topic, folder, kind).messages == (10 if folder.name == "existing" else 20)
        with pytest.raises(ConfigError, match="another process wrote to"):
            late.run()
        late.close()
        assert Counter(archived(folder, kind)) == expected(20)


@pytest.mark.parametrize("kind", FORMATS[1:])
def test_table_with_other_columns(server: Standalone, topic: str, kind: str, tmp_path: Path) -> None:
    send(server, topic, 0, 5)
    run(server, topic, tmp_path, kind)
    send(server, topic, 5, 5)
    with pytest.raises(ConfigError, match=r"does not take these rows: "):
        run(server, topic, tmp_path, kind, body_format="json", body_schema="n int")
    assert Counter(archived(tmp_path, kind)) == expected(5)


def test_typed_bodies(server: Standalone, topic: str, tmp_path: Path) -> None:
    send(server, topic, 0, 5)
    run(server, topic, tmp_path, "parquet", body_format="json", body_schema="n int")
    assert sorted(body["n"] for body in archived(tmp_path, "parquet")) == [0, 1, 2, 3, 4]  # type: ignore[index]


class Killed(BaseException):
    """The end of the process."""


class DyingSystem:
    """The calls of an archive to its system, of which one never returns."""

    O_RDONLY, LOCK_EX, LOCK_NB = os.O_RDONLY, 0, 0
    open, close = staticmethod(os.open), staticmethod(os.close)

    def __init__(self, calls: int) -> None:
        self._left = calls
        self._locks: list[Any] = []

    def flock(self, file: Any, _: int) -> None:
        self._locks.append(file)

    def replace(self, source: Path, target: Path) -> None:
        self._step()
        os.replace(source, target)

    def fsync(self, descriptor: int) -> None:
        self._step()
        os.fsync(descriptor)

    def end(self) -> None:
        """Close the files of the process."""
        for each in self._locks:
            each.close()

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed


def test_parquet_after_a_crash_at_every_step(
    server: Standalone, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies at each rename and each flush of its files, also while it recovers, one step later each time."""
    crashes = count = 0
    for after in range(40):
        send(server, topic, count, 60)
        count += 60
        system = DyingSystem(after)
        with monkeypatch.context() as patched:
            patched.setattr(parquet_archive, "os", system)
            patched.setattr(parquet_archive, "fcntl", system)
            try:
                open_archive(topic, str(tmp_path), server.namesrv, commit_bytes=8_000).run()
            except Killed:
                crashes += 1
        system.end()
        found = Counter(archived(tmp_path, "parquet"))
        assert not found or max(found.values()) == 1
        assert found <= expected(count)
    assert crashes >= 20
    run(server, topic, tmp_path, "parquet")
    assert Counter(archived(tmp_path, "parquet")) == expected(count)
    assert not list((tmp_path / "_rmqpy" / "staging").iterdir())


def test_two_archivers_of_one_folder(server: Standalone, topic: str, tmp_path: Path) -> None:
    archive = open_archive(topic, str(tmp_path), server.namesrv)
    with pytest.raises(ConfigError, match="another process archives to"):
        open_archive(topic, str(tmp_path), server.namesrv)
    archive.close()
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic("another")
    run(server, topic, tmp_path, "parquet")
    send(server, topic, 0, 1)
    run(server, topic, tmp_path, "parquet")
    with pytest.raises(ConfigError, match="has an archive of topic"):
        open_archive("another", str(tmp_path), server.namesrv)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", FORMATS)
def test_kills(server: Standalone, topic: str, kind: str, tmp_path: Path) -> None:
    """A command that is killed at any time, and repeated, archives each message once."""
    kills = int(os.environ.get("RMQPY_KILLS", "3"))
    count = 0
    rng = random.Random(int(os.environ.get("RMQPY_SEED", "0")))
    longest, killed = 3.0, 0
    while killed < kills:
        send(server, topic, count, 10_000)
        count += 10_000
        began = time.monotonic()
        command = subprocess.Popen(
            [
                *(sys.executable, "-m", "rmqpy", "-q", "archive", topic, str(tmp_path), "--format", kind),
                *("--commit-mb", "1", "-n", server.namesrv),
            ],
            stdout=subprocess.DEVNULL,
        )
        try:
            assert command.wait(rng.uniform(0.3 * longest, longest)) == 0
            longest = time.monotonic() - began
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()
            killed += 1
        found = Counter(archived(tmp_path, kind))
        assert not found or max(found.values()) == 1, f"twice after {killed} kills"
        assert found <= expected(count)
    run(server, topic, tmp_path, kind)
    assert Counter(archived(tmp_path, kind)) == expected(count)
    print(f"{kind}: {killed} kills, {count} messages, each once")


@pytest.fixture
def rmqpy_(server: Standalone, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line."""
    return runner(server.namesrv, monkeypatch, capfd)


def test_command(rmqpy_: Run, server: Standalone, topic: str, tmp_path: Path) -> None:
    send(server, topic, 0, 30)
    code, out, _ = rmqpy_("archive", topic, str(tmp_path), "--plan", "-o", "jsonl")
    assert code == 0
    assert '"state": "new archive"' in out
    assert '"messages_at_most": 30' in out
    assert archived(tmp_path, "parquet") == []
    code, out, err = rmqpy_("archive", topic, str(tmp_path), "-o", "jsonl")
    assert code == 0
    assert '"messages": 30, "commits": 1' in out
    assert err.startswith("new archive: up to 30 messages")
    assert "goes on" in rmqpy_("archive", topic, str(tmp_path), "--plan")[1]
    code, _, err = rmqpy_("archive", topic, "s3://bucket/orders")
    assert code == 2
    assert "use Delta there" in err


def test_group_has_the_position_of_the_last_commit(server: Standalone, topic: str, tmp_path: Path) -> None:
    group = f"archive-{topic}"
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_group(group)
        for end in (15, 30):
            send(server, topic, end - 15, 15)
            run(server, topic, tmp_path / "archive", "parquet", group=group)
            progress = admin.progress(group, topic)
            assert (sum(each.offset for each in progress), sum(each.lag for each in progress)) == (end, 0)


def test_archive_is_complete_if_its_group_does_not_exist(
    server: Standalone, topic: str, tmp_path: Path
) -> None:
    send(server, topic, 0, 5)
    archive = open_archive(topic, str(tmp_path / "archive"), server.namesrv, group="nowhere")
    try:
        assert archive.run().messages == 5
    finally:
        archive.close()
    assert "nowhere" in (archive.group_fault or "")
    assert Counter(archived(tmp_path / "archive", "parquet")) == expected(5)
