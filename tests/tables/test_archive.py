"""Archives: tables after runs, after crashes at every step, and after kills."""

import os
import random
import re
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

FORMATS = [
    "parquet",
    pytest.param("delta", marks=pytest.mark.skipif("not has('deltalake')")),
    pytest.param("iceberg", marks=pytest.mark.skipif("not has('pyiceberg_core')")),
]


def has(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


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


def iceberg_table(folder: Path) -> Any:
    """The only table of a folder, or `None`."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("rmqpy", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
    try:
        tables = catalog.list_tables("topics") if catalog.namespace_exists("topics") else []
        return catalog.load_table(tables[0]) if tables else None
    finally:
        catalog.close()


def archived(folder: Path, kind: str) -> list[bytes]:
    """The bodies in a table, as a reader of files sees them."""
    if kind == "iceberg":
        found = iceberg_table(folder)
        if found is None:
            return []
        table = found.scan().to_arrow()
    elif kind == "delta":
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


@pytest.mark.parametrize("kind", FORMATS[:2])
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


@pytest.mark.skipif("not has('pyiceberg_core')")
def test_iceberg_table_is_read_by_others(
    server: Standalone, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, totals and hourly partitions by pyiceberg, Polars and DuckDB."""
    # Polars sets the first when it is imported, and warns of a planner that is not installed.
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "")
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    from pyiceberg.transforms import HourTransform

    send(server, topic, 0, 40)
    run(server, topic, tmp_path, "iceberg", body_format="json", body_schema="n int", commit_bytes=5_000)
    table = iceberg_table(tmp_path)
    assert [str(field.transform) for field in table.spec().fields] == [str(HourTransform())]
    assert table.inspect.partitions().num_rows <= 2
    rows = table.scan().to_arrow()
    assert (rows.num_rows, pa.compute.sum(rows["body"].combine_chunks().field("n")).as_py()) == (40, 780)
    frame = polars.scan_iceberg(table).collect()
    assert (frame.height, frame["body"].struct.field("n").sum()) == (40, 780)
    # DuckDB has no reader of Iceberg without a download: it takes the data files of the snapshot.
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    assert duckdb.sql(f"select count(*), sum(body.n) from read_parquet({files})").fetchall() == [(40, 780)]
    earlier = table.scan(
        row_filter=f"storeTimestamp < '{rows['storeTimestamp'][0].as_py():%Y-%m-%dT%H}:00:00+00:00'"
    )
    assert earlier.to_arrow().num_rows == 0


@pytest.mark.skipif("not has('pyiceberg_core')")
def test_program_of_the_page_reads_the_table(
    server: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / "tables.md"
    (program,) = re.findall(r"```py\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic("sales")
    send(server, "sales", 0, 7)
    run(server, "sales", tmp_path / "lake" / "iceberg", "iceberg")
    exec(compile(program, page.name, "exec"), {})
    assert capsys.readouterr().out == "7\n"


@pytest.mark.skipif("not has('pyiceberg_core')")
def test_position_of_iceberg_outlives_its_snapshots(server: Standalone, topic: str, tmp_path: Path) -> None:
    send(server, topic, 0, 30)
    assert run(server, topic, tmp_path, "iceberg", commit_bytes=5_000).commits > 1
    table = iceberg_table(tmp_path)
    old = [snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert len(iceberg_table(tmp_path).snapshots()) == 1
    assert run(server, topic, tmp_path, "iceberg") == Archived(0, 0, 0)
    send(server, topic, 30, 10)
    assert run(server, topic, tmp_path, "iceberg").messages == 10
    assert Counter(archived(tmp_path, "iceberg")) == expected(40)


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


@pytest.mark.skipif("not has('pyiceberg_core')")
def test_iceberg_in_a_catalog_of_the_user(server: Standalone, topic: str, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/mine.db", "warehouse": str(tmp_path)}
    send(server, topic, 0, 5)
    options: dict[str, Any] = {"format": "iceberg", "catalog": "mine", "catalog_properties": properties}
    archive = open_archive(topic, "shop.orders", server.namesrv, **options)
    assert archive.run().messages == 5
    archive.close()
    catalog = load_catalog("mine", **properties)
    assert catalog.load_table("shop.orders").scan().to_arrow().num_rows == 5
    catalog.close()
    for destination, more, complaint in (
        ("orders", {}, "is not the name of a table in a catalog; use namespace.table"),
        ("shop.orders", {"catalog_properties": {"type": "none"}}, "the catalog 'mine' cannot be opened"),
        ("s3://lake/orders", {"catalog": None, "catalog_properties": None}, "object store needs a catalog"),
        ("orders", {"catalog": None}, "properties of a catalog need its name"),
        ("orders", {"format": "delta"}, "only Iceberg has catalogs"),
        (
            "orders",
            {"format": "orc", "catalog": None, "catalog_properties": None},
            "use parquet, delta, iceberg",
        ),
    ):
        with pytest.raises(ConfigError, match=complaint):
            open_archive(topic, destination, server.namesrv, **{**options, **more})


@pytest.mark.parametrize("kind", FORMATS[1:])
def test_table_with_other_columns(server: Standalone, topic: str, kind: str, tmp_path: Path) -> None:
    send(server, topic, 0, 5)
    run(server, topic, tmp_path, kind)
    send(server, topic, 5, 5)
    with pytest.raises(ConfigError, match=r"does not take these rows: "):
        run(server, topic, tmp_path, kind, body_format="json", body_schema="n int")
    assert Counter(archived(tmp_path, kind)) == expected(5)


@pytest.mark.skipif("not has('pyiceberg_core')")
def test_iceberg_files_are_on_disk_before_the_catalog_refers_to_them(
    server: Standalone, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file of a commit, and the folder that has it, are flushed before the commit of the catalog."""
    from pyiceberg.catalog.sql import SqlCatalog

    from rmqpy.tables.archive import durable

    flushed: set[Path] = set()
    seen: list[set[Path]] = []

    class Watched:
        O_RDONLY, open, close = os.O_RDONLY, staticmethod(os.open), staticmethod(os.close)

        @staticmethod
        def fsync(descriptor: int) -> None:
            os.fsync(descriptor)
            flushed.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(durable, "os", Watched)
    commit = SqlCatalog.commit_table

    def watched(self: Any, *arguments: Any) -> Any:
        data = {path for path in tmp_path.rglob("*") if path.suffix in (".parquet", ".avro")}
        seen.append({path for path in data if not {path, path.parent} <= flushed})
        return commit(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", watched)
    send(server, topic, 0, 20)
    run(server, topic, tmp_path, "iceberg")
    assert len(seen) >= 2
    assert set().union(*seen) == set()
    assert any(path.suffix == ".json" for path in flushed)


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
    assert "use Delta or Iceberg there" in err
    code, _, err = rmqpy_(
        "archive", topic, "a.b", "--format", "iceberg", "--catalog", "c", "--catalog-property", "uri"
    )
    assert code == 2
    assert "'uri' is not NAME=VALUE" in err


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
