"""Content of a name server: key-value pairs and its own settings."""

import asyncio
import json
import os
import threading
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakebroker import BrokerMaker, Connect, StartNameServer
from rmqpy.clock import HandClock
from rmqpy.config import files, namesrv
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.errors import ConfigError
from rmqpy.namesrv import NameServer
from rmqpy.protocol import fastjson
from rmqpy.protocol.requests.kv import (
    DeleteKv,
    GetKv,
    GetKvList,
    GetNameServerConfig,
    PutKv,
    UpdateNameServerConfig,
)
from rmqpy.routing.kv import KeyValues, Table
from wire import TIMEOUT_S, Peer, Refusal


async def test_value_exists_until_it_is_deleted(peer: Peer) -> None:
    await peer.ask(PutKv(namespace="n", key="k", value="größe"))
    assert (await peer.ask(GetKv(namespace="n", key="k"))).value == "größe"
    assert (await peer.ask(GetKvList(namespace="n"))).table == {"k": "größe"}
    await peer.ask(DeleteKv(namespace="n", key="k"))
    await peer.ask(DeleteKv(namespace="n", key="k"))
    await peer.ask(DeleteKv(namespace="nowhere", key="k"))
    frame = await peer.call(101, {"namespace": "n", "key": "k"})
    assert (frame.code, frame.remark) == (22, "No config item, Namespace: n Key: k")


async def test_an_unknown_namespace_is_22(peer: Peer) -> None:
    frame = await peer.call(219, {"namespace": "n"})
    assert (frame.code, frame.remark) == (22, "No config item, Namespace: n")


@pytest.mark.parametrize("missing", ["namespace", "key", "value"])
async def test_a_pair_without_all_its_parts_is_refused(peer: Peer, missing: str) -> None:
    ext = {"namespace": "n", "key": "k", "value": "v"}
    del ext[missing]
    assert (await peer.call(100, ext)).code == 1


async def test_pairs_survive_a_restart_in_the_file_of_the_original(
    start: StartNameServer, connect: Connect, tmp_path: Path
) -> None:
    first = await start()
    peer = await connect(first)
    await peer.ask(PutKv(namespace="n", key="k", value="v"))
    await peer.ask(PutKv(namespace="n", key="k2", value="v2"))
    table = {"configTable": {"n": {"k": "v", "k2": "v2"}}}
    assert json.loads((tmp_path / "kvConfig.json").read_text()) == table
    assert json.loads((tmp_path / "kvConfig.json.bak").read_text()) == {"configTable": {"n": {"k": "v"}}}
    await first.stop()
    again = await connect(await start())
    assert (await again.ask(GetKvList(namespace="n"))).table == {"k": "v", "k2": "v2"}


async def test_acknowledged_pairs_are_on_disk_under_concurrency(peer: Peer, tmp_path: Path) -> None:
    for number in range(50):
        await peer.send(100, {"namespace": "n", "key": f"k{number}", "value": "v"})
    for _ in range(50):
        assert (await peer.receive()).code == 0
    table = json.loads((tmp_path / "kvConfig.json").read_text())["configTable"]["n"]
    assert set(table) == {f"k{number}" for number in range(50)}


async def test_pairs_set_during_a_write_share_the_next_writes(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, writes, save, may_write = 200, [], files.save_pieces, threading.Event()

    def held(path: Path, pieces: Iterable[str]) -> None:
        writes.append(path)
        assert may_write.wait(TIMEOUT_S)
        save(path, pieces)

    monkeypatch.setattr(files, "save_pieces", held)
    for number in range(count):
        await peer.send(100, {"namespace": "n", "key": f"k{number}", "value": "v"})
    # Requests of a connection are taken in order: with this answer the server has all of them.
    assert (await peer.call(101, {"namespace": "n", "key": "k0"})).code == 22
    may_write.set()
    assert [(await peer.receive()).code for _ in range(count)] == [0] * count
    # One write for the first change, and the others 32 at a time.
    assert len(writes) <= 8


async def test_a_change_that_changes_nothing_writes_nothing(peer: Peer, tmp_path: Path) -> None:
    put = PutKv(namespace="n", key="k", value="v")
    await peer.ask(put)
    written = (tmp_path / "kvConfig.json").stat()
    await peer.ask(put)
    await peer.ask(DeleteKv(namespace="n", key="other"))
    await peer.ask(DeleteKv(namespace="nowhere", key="k"))
    assert (tmp_path / "kvConfig.json").stat().st_ino == written.st_ino
    await peer.ask(DeleteKv(namespace="n", key="k"))
    assert json.loads((tmp_path / "kvConfig.json").read_text()) == {"configTable": {"n": {}}}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TABLES = st.dictionaries(TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3), max_size=3)


@given(table=TABLES, changes=st.lists(st.tuples(TEXTS, TEXTS, st.none() | TEXTS), max_size=8))
def test_file_has_the_common_layout_and_all_pairs(
    tmp_path_factory: pytest.TempPathFactory, table: Table, changes: list[tuple[str, str, str | None]]
) -> None:
    path = tmp_path_factory.mktemp("kv") / "kvConfig.json"
    path.write_text(fastjson.pretty({"configTable": table}))

    async def change() -> None:
        values = KeyValues(path)
        values.load()
        for namespace, key, value in changes:
            if value is None:
                table.get(namespace, {}).pop(key, None)
                await values.delete(namespace, key)
            else:
                table.setdefault(namespace, {})[key] = value
                await values.put(namespace, key, value)
        assert {namespace: values.namespace(namespace) for namespace in table} == table

    asyncio.run(change())
    assert path.read_text() == fastjson.pretty({"configTable": table})


async def test_a_full_table_is_written_without_a_copy_of_it_in_memory(tmp_path: Path) -> None:
    """A change holds the interpreter, and route requests wait for it."""
    values = KeyValues(tmp_path / "kvConfig.json")
    await asyncio.gather(*(values.put("n", f"k{number}", "v" * 20_000) for number in range(200)))
    tracemalloc.start()
    await values.put("n", "k0", "w")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 512 << 10, peak
    assert len(json.loads((tmp_path / "kvConfig.json").read_text())["configTable"]["n"]["k199"]) == 20_000


async def test_unwritable_pair_is_refused_and_not_visible(
    start: StartNameServer, connect: Connect, tmp_path: Path
) -> None:
    peer = await connect(await start(kv_path=str(tmp_path / "folder" / "kvConfig.json")))
    (tmp_path / "folder").write_text("not a folder")
    with pytest.raises(Refusal):
        await peer.ask(PutKv(namespace="n", key="k", value="v"))
    with pytest.raises(Refusal) as refusal:
        await peer.ask(GetKv(namespace="n", key="k"))
    assert refusal.value.code == 22


async def test_table_is_bounded_and_deletions_free_room(peer: Peer) -> None:
    large = "v" * 200_000
    codes = [
        (await peer.call(100, {"namespace": "n", "key": f"k{n}", "value": large})).code for n in range(25)
    ]
    assert codes == [0] * 20 + [1] * 5
    assert (await peer.call(101, {"namespace": "n", "key": "k20"})).code == 22, (
        "what was refused is not there"
    )
    await peer.call(102, {"namespace": "n", "key": "k0"})
    assert (await peer.call(100, {"namespace": "n", "key": "k20", "value": large})).code == 0


# ---- files ----


@pytest.mark.parametrize(
    ("main", "backup", "expected"),
    [
        (None, None, None),
        ("1", None, "1"),
        (None, "2", "2"),
        ("", "2", "2"),
        ("broken", "2", "2"),
        ("1", "broken", "1"),
    ],
)
def test_a_file_is_read_from_its_backup_where_it_is_missing_or_damaged(
    tmp_path: Path, main: str | None, backup: str | None, expected: str | None
) -> None:
    path = tmp_path / "table.json"
    for content, where in ((main, path), (backup, tmp_path / "table.json.bak")):
        if content is not None:
            where.write_text(content)
    assert files.load(path, lambda text: str(int(text))) == expected


def test_a_file_that_is_damaged_like_its_backup_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("broken")
    (tmp_path / "table.json.bak").write_text("broken too")
    with pytest.raises(ConfigError, match=r"neither .* nor its backup can be read"):
        files.load(path, int)


def test_a_damaged_file_does_not_replace_the_good_backup(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("broken")
    (tmp_path / "table.json.bak").write_text("2")
    assert files.load(path, int) == 2
    files.save(path, "3")
    assert (tmp_path / "table.json.bak").read_text() == "2"
    assert path.read_text() == "3"


@pytest.mark.parametrize("survivors", [1, 2, 3, 4])
def test_a_crash_between_any_two_steps_of_a_save_leaves_one_whole_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survivors: int
) -> None:
    """Goal: at every moment old or new content can be read. Method: the n-th file operation never happens."""
    path = tmp_path / "table.json"
    files.save(path, "1")
    files.save(path, "2")
    steps = 0

    def crash_at(operation: object) -> object:
        def step(*arguments: object, **options: object) -> object:
            nonlocal steps
            steps += 1
            if steps >= survivors:
                raise KeyboardInterrupt
            return operation(*arguments, **options)  # type: ignore[operator]

        return step

    monkeypatch.setattr(os, "fsync", crash_at(os.fsync))
    monkeypatch.setattr(Path, "replace", crash_at(Path.replace))
    with pytest.raises(KeyboardInterrupt):
        files.save(path, "3")
    monkeypatch.undo()
    assert files.load(path, int) in (2, 3)


# ---- settings ----


async def test_settings_are_listed_as_properties(peer: Peer) -> None:
    text = await peer.ask(GetNameServerConfig())
    assert "listenPort=0\n" in text
    assert "orderMessageEnable=false\n" in text


async def test_changed_setting_applies_immediately_and_is_saved(
    server: NameServer, peer: Peer, tmp_path: Path
) -> None:
    (tmp_path / "namesrv.properties").write_text("# ours\nenableTopicList=true\n")
    await peer.ask(UpdateNameServerConfig(body="enableTopicList=false\nenableAllTopicList = false\n"))
    assert (await peer.call(206)).code == 1
    text = (tmp_path / "namesrv.properties").read_text()
    assert text == "# ours\nenableTopicList=false\nenableAllTopicList=false\n"
    assert "enableTopicList=false\n" in await peer.ask(GetNameServerConfig())


async def test_changed_scan_interval_applies_immediately(
    start: StartNameServer, connect: Connect, broker: BrokerMaker, clock: HandClock
) -> None:
    server = await start(scan_interval_ms=120_000)
    peer, silent = await connect(server), await broker(server=server)
    await silent.register()
    await peer.ask(UpdateNameServerConfig(body="scanNotActiveBrokerInterval=10\n"))
    assert (await peer.call(105, {"topic": "orders"})).code == 0
    clock.advance(121)
    assert await silent.peer.is_closed_by_server()
    assert (await peer.call(105, {"topic": "orders"})).code == 17


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("kvConfigPath=/elsewhere", 16),
        ("configStorePath=/elsewhere", 16),
        ("configBlackList=none", 16),
        ("rocketmqHome=/elsewhere", 16),
        ("enableTopicList=perhaps", 1),
        ("listenPort=1", 1),
        ("noSuchKey=1", 1),
        ("enableTopicList=\\u00", 1),
    ],
)
async def test_a_change_that_is_not_allowed_changes_nothing(
    peer: Peer, tmp_path: Path, text: str, code: int
) -> None:
    before = await peer.ask(GetNameServerConfig())
    frame = await peer.call(318, None, f"enableAllTopicList=false\n{text}\n".encode())
    assert frame.code == code
    assert await peer.ask(GetNameServerConfig()) == before
    assert not (tmp_path / "namesrv.properties").exists()


def test_every_setting_is_explained() -> None:
    for wire, (_, key) in NameServerConfig.declared().items():
        assert key.doc.endswith("."), wire


def test_a_configuration_file_of_the_original_is_read(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort = 19876\nserverWorkerThreads=8\nclusterTest=false\norderMessageEnabel=true\n")
    config, warnings = namesrv.load(path, {"bindAddress": "0.0.0.0"})
    assert (config.listen_port, config.bind_address, config.store_path) == (19876, "0.0.0.0", str(path))
    assert warnings == [
        "serverWorkerThreads=8 is ignored: not needed here",
        "orderMessageEnabel=true is unknown and ignored; did you mean orderMessageEnable?",
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"clusterTest": "true"}, "cannot start with clusterTest=true"),
        ({"listenPort": "70000"}, "listenPort=70000: must be from 0 to 65535"),
        ({"listenPort": "many"}, "listenPort=many: must be a whole number"),
    ],
)
def test_a_setting_that_cannot_be_served_stops_the_start(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        namesrv.read(given)


async def test_a_port_in_use_is_an_error_at_the_start(server: NameServer, tmp_path: Path) -> None:
    port = int(server.address.rpartition(":")[2])
    other = NameServer(NameServerConfig(listen_port=port, kv_path="", store_path=""))
    with pytest.raises(OSError, match=rf"127.0.0.1:{port}: .*another port.*sport = :{port}"):
        await other.start()
    await other.stop()


async def test_stop_is_idempotent(start: StartNameServer) -> None:
    server = await start()
    await server.stop()
    await server.stop()
