"""Known backups: a broker knows the folders of `rmqpy backup`, also after a restart."""

import json
import socket
from pathlib import Path

from broker.conftest import made_broker
from broker.talk import send
from rmqpy.admin.client import AsyncAdmin
from rmqpy.backup.run import back_up
from rmqpy.config.client import ClientConfig
from rmqpy.control.store.backups import FOLDERS_MAX, NAME_CHARS_MAX
from rmqpy.protocol.requests.replicas import BackupReport, ExchangeBrokerHaInfo, GetBrokerHaStatus
from wire import Peer


async def known(peer: Peer) -> list[BackupReport]:
    found = (await peer.ask(GetBrokerHaStatus())).backups
    assert found is not None
    return found


def begin(name: str) -> ExchangeBrokerHaInfo:
    return ExchangeBrokerHaInfo(wants_ticket=True, is_observer=True, observer_name=name)


async def test_backup_is_known_with_what_it_lacks_and_after_a_restart(tmp_path: Path, namesrv: str) -> None:
    config, folder = ClientConfig(namesrv=namesrv), tmp_path / "backup"
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        assert await known(peer) == []
        assert (await send(peer, "orders", bytes(1_000))).code == 0
        done = await back_up(config, None, folder)
        [first] = await known(peer)
        assert first.name == f"{socket.gethostname()}:{folder}"
        assert first.addr.startswith("127.0.0.1:")
        assert first.log_end == done.manifest.log_end
        assert first.ended_ago_millis is not None
        assert first.ended_ago_millis <= first.began_ago_millis
        lacked = first.diff
        assert (await send(peer, "orders", bytes(1_000))).code == 0
        assert (await known(peer))[0].diff >= lacked + 1_000
        async with AsyncAdmin(config) as admin:
            [state] = await admin.backups()
        assert (state.broker, state.folder, state.is_complete) == ("broker-a", first.name, True)
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        [again] = await known(peer)
        assert (again.name, again.log_end) == (first.name, first.log_end)


async def test_interrupted_run_is_not_complete_and_keeps_the_last_one(tmp_path: Path, namesrv: str) -> None:
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        await back_up(ClientConfig(namesrv=namesrv), None, tmp_path / "backup")
        [before] = await known(peer)
        await peer.ask(begin(before.name))
        [after] = await known(peer)
        assert after.ended_ago_millis is not None
        assert after.ended_ago_millis >= after.began_ago_millis
        assert after.log_end == before.log_end
        async with AsyncAdmin(ClientConfig(namesrv=namesrv)) as admin:
            [state] = await admin.backups()
        assert not state.is_complete
        assert state.ended_at is not None


async def test_names_from_outside_are_bounded(tmp_path: Path, namesrv: str) -> None:
    async with made_broker(tmp_path, namesrv, {}) as broker, await Peer.connect(broker.address) as peer:
        for number in range(FOLDERS_MAX + 3):
            await peer.ask(begin(f"{number:04}{'x' * 1_000}"))
        # The end of a run whose begin is unknown.
        await peer.ask(ExchangeBrokerHaInfo(is_observer=True, observer_name="other", observer_end=1))
        found = await known(peer)
        assert [each.name[:4] for each in found] == [f"{n:04}" for n in range(FOLDERS_MAX + 2, 2, -1)]
        assert {len(each.name) for each in found} == {NAME_CHARS_MAX}
    saved = json.loads((tmp_path / "store" / "config" / "backups.json").read_text("utf-8"))
    assert len(saved["backups"]) == FOLDERS_MAX
