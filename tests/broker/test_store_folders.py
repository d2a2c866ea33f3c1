"""Log, queues and index on other file systems than the root: served, found again, and never silently recreated."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.conftest import made_broker
from broker.talk import pull, send
from rmqpy.config import broker as broker_config
from rmqpy.config.store import FOLDER_KEYS
from rmqpy.errors import StoreError
from rmqpy.protocol.codes import RequestCode
from rmqpy.server import written
from rmqpy.testing import SMALL
from wire import Peer

#: A file system that is another one on every Linux.
MEMORY = Path("/dev/shm")
SIZES = {"mappedFileSizeCommitLog": "524288"}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than `tmp_path`, or next to it if the machine has only one."""
    is_other = os.access(MEMORY, os.W_OK) and MEMORY.stat().st_dev != tmp_path.stat().st_dev
    with tempfile.TemporaryDirectory(prefix="rmqpy-", dir=MEMORY if is_other else tmp_path) as folder:
        yield Path(folder)


def named(folder: Path) -> dict[str, str]:
    """Settings that put all three there."""
    return {key: str(folder / key) for key in FOLDER_KEYS}


async def fill(tmp_path: Path, settings: dict[str, str], count: int = 40) -> None:
    """A broker's life: messages of several files, which it stops with in order."""
    async with (
        made_broker(tmp_path, "", SIZES | settings) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        for number in range(count):
            assert (await send(peer, "orders", b"%d" % number + bytes(60_000), e="0")).code == 0


async def bodies(tmp_path: Path, settings: dict[str, str]) -> int:
    """Messages that a broker with these settings has in the queue."""
    async with (
        made_broker(tmp_path, "", SIZES | settings) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        answer = await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        assert b"0" in (await pull(peer, "billing", "orders")).body
        found = await peer.call(
            RequestCode.QUERY_MESSAGE,
            {
                "topic": "orders",
                "key": "k1",
                "maxNum": "4",
                "beginTimestamp": "0",
                "endTimestamp": f"{1 << 62}",
            },
        )
        assert found.code == 0
        return int((answer.ext or {})["offset"])


def listing(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def refusal(tmp_path: Path, settings: dict[str, str]) -> str:
    with pytest.raises(StoreError) as refused:
        async with made_broker(tmp_path, "", SIZES | settings):
            pass
    return str(refused.value)


async def test_store_folders_on_other_file_systems_survive_restarts(tmp_path: Path, elsewhere: Path) -> None:
    root, settings = tmp_path / "store", named(elsewhere)
    await fill(tmp_path, settings)
    assert len([each for each in (elsewhere / "storePathCommitLog").iterdir() if each.is_file()]) > 1
    assert (elsewhere / "storePathConsumeQueue/orders/0").is_dir()
    assert list((elsewhere / "storePathIndex").iterdir())
    assert not [name for name in ("commitlog", "consumequeue", "index") if (root / name).exists()]
    assert {"manifest", "paths"} <= {each.name for each in (root / "rmqpy").iterdir()}
    assert await bodies(tmp_path, settings) == 40
    for key in FOLDER_KEYS[1:]:
        shutil.rmtree(elsewhere / key)
    assert await bodies(tmp_path, settings) == 40, "what is derived is made anew"


async def test_disks_are_reported_with_their_folders(tmp_path: Path, elsewhere: Path) -> None:
    async with (
        made_broker(tmp_path, "", named(elsewhere)) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        info = (await peer.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body.decode()
    assert f"commitLogDiskRatio_{elsewhere}/storePathCommitLog" in info


@pytest.mark.parametrize("key", FOLDER_KEYS)
async def test_start_without_the_folder_setting_names_the_folders(
    tmp_path: Path, elsewhere: Path, key: str
) -> None:
    settings = {key: str(elsewhere / "here")}
    await fill(tmp_path, settings)
    before = listing(elsewhere)
    below = {
        "storePathCommitLog": "commitlog",
        "storePathConsumeQueue": "consumequeue",
        "storePathIndex": "index",
    }
    for wrong in ({}, {key: str(elsewhere / "there")}):
        for _ in range(2):
            told = await refusal(tmp_path, wrong)
            assert f"set {key}={elsewhere}/here" in told
            assert wrong.get(key, str(tmp_path / "store" / below[key])) in told
    assert listing(elsewhere) == before
    assert await bodies(tmp_path, settings) == 40


@pytest.mark.parametrize("key", FOLDER_KEYS)
async def test_changed_folder_setting_does_not_abandon_files(
    tmp_path: Path, elsewhere: Path, key: str
) -> None:
    await fill(tmp_path, {})
    settings = {key: str(elsewhere / "here")}
    told = await refusal(tmp_path, settings)
    name = {
        "storePathCommitLog": "commitlog",
        "storePathConsumeQueue": "consumequeue",
        "storePathIndex": "index",
    }[key]
    assert str(tmp_path / "store" / name) in told
    shutil.move(tmp_path / "store" / name, elsewhere / "here")
    assert await bodies(tmp_path, settings) == 40, "moved together with its setting"
    shutil.move(elsewhere / "here", tmp_path / "store" / name)
    assert await bodies(tmp_path, {}) == 40, "and back"


async def test_log_on_an_unmounted_disk_is_not_recreated(tmp_path: Path, elsewhere: Path) -> None:
    settings = named(elsewhere)
    await fill(tmp_path, settings, 4)
    log = elsewhere / "storePathCommitLog"
    log.rename(elsewhere / "unmounted")
    for _ in range(2):
        told = await refusal(tmp_path, settings)
        assert str(log) in told
        assert "is its disk mounted?" in told
    # A folder of Apache's broker with a separate log has no record of ours.
    (tmp_path / "store/rmqpy/paths").unlink()
    assert "is its disk mounted?" in await refusal(tmp_path, settings)
    (elsewhere / "unmounted").rename(log)
    assert await bodies(tmp_path, settings) == 4


async def test_copied_root_uses_its_own_folders(tmp_path: Path, elsewhere: Path) -> None:
    settings = {"storePathIndex": str(elsewhere / "index")}
    await fill(tmp_path, settings, 4)
    shutil.copytree(tmp_path / "store", tmp_path / "copy/store")
    assert await bodies(tmp_path / "copy", settings) == 4


async def test_two_brokers_do_not_share_a_folder(tmp_path: Path, elsewhere: Path) -> None:
    for key in FOLDER_KEYS:
        settings = {key: str(elsewhere / "shared" / key)}
        async with made_broker(tmp_path / "a" / key, "", settings):
            assert f"{elsewhere}/shared/{key}: locked" in await refusal(tmp_path / "b" / key, settings)


async def test_a_path_through_a_link_is_the_same_folder(tmp_path: Path, elsewhere: Path) -> None:
    settings = {"storePathCommitLog": str(elsewhere / "log")}
    await fill(tmp_path, settings, 4)
    (tmp_path / "link").symlink_to(elsewhere)
    assert await bodies(tmp_path, {"storePathCommitLog": str(tmp_path / "link/log")}) == 4


def stopped(tmp_path: Path, settings: dict[str, str], *, exclusive: bool = False) -> Any:
    from rmqpy._native import StoppedStore

    given = {"storePathRootDir": str(tmp_path / "store"), **written(SMALL), **settings}
    return StoppedStore(broker_config.read(given).config.store, exclusive=exclusive)


async def test_a_stopped_store_is_inspected_where_it_lies(tmp_path: Path, elsewhere: Path) -> None:
    await fill(tmp_path, named(elsewhere))
    for settings in ({}, named(elsewhere)):
        store = stopped(tmp_path, settings)
        report = store.verify()
        assert (report["records"], report["damage"], report["keys"]) == (40, 0, 40 * 2), report
        store.copy(tmp_path / f"copy-{len(settings)}")
        store.release()
        assert (tmp_path / f"copy-{len(settings)}/commitlog").is_dir()
    shutil.rmtree(elsewhere / "storePathIndex")
    store = stopped(tmp_path, {}, exclusive=True)
    assert store.index_folder == elsewhere / "storePathIndex"
    assert store.rebuild_index() == 40
    assert store.verify()["damage"] == 0
    store.release()
    assert not [each for each in (elsewhere / "storePathIndex").iterdir() if each.is_dir()]
    assert await bodies(tmp_path, named(elsewhere)) == 40
