"""Lost slaves: a master knows the last reports of slaves that are no longer connected."""

from pathlib import Path
from typing import NamedTuple, cast

from broker.conftest import made_broker
from broker.replicas import made_slave
from broker.talk import send
from rmqpy._native import ConnectedSlave
from rmqpy.clock import HandClock
from rmqpy.control.replicas.lost_slaves import LOST_MAX, LostSlaves
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus, HaStatus
from waiting import until_async
from wire import Peer


class Slave(NamedTuple):
    address: str
    end: int
    silent_ms: int = 0


def looks(lost: LostSlaves, *slaves: Slave) -> None:
    lost.look(cast(list[ConnectedSlave], slaves))


def test_lost_slave_is_silent_since_its_last_report() -> None:
    clock = HandClock()
    lost = LostSlaves(clock.elapsed)
    clock.advance(10)
    looks(lost, Slave("10.0.0.3:1", 100, 2_000))
    assert lost.now() == []
    looks(lost)
    clock.advance(38)
    [(slave, silent_ms)] = lost.now()
    assert (slave.address, slave.end, silent_ms) == ("10.0.0.3:1", 100, 40_000)


def test_slave_is_found_when_it_connects_from_another_port() -> None:
    lost = LostSlaves(HandClock().elapsed)
    looks(lost, Slave("10.0.0.3:1", 100), Slave("10.0.0.4:1", 90))
    looks(lost)
    assert [slave.end for slave, _ in lost.now()] == [100, 90]
    looks(lost, Slave("10.0.0.3:2", 110))
    assert [slave.address for slave, _ in lost.now()] == ["10.0.0.4:1"]


def test_few_lost_slaves_are_kept() -> None:
    lost = LostSlaves(HandClock().elapsed)
    for number in range(LOST_MAX + 5):
        looks(lost, Slave(f"10.0.0.{number}:1", number))
    looks(lost)
    assert [slave.end for slave, _ in lost.now()] == list(range(5, LOST_MAX + 5))


async def test_master_reports_the_lag_of_a_stopped_slave_until_it_is_back(
    tmp_path: Path, namesrv: str
) -> None:
    async with made_broker(tmp_path, namesrv, {}) as master, await Peer.connect(master.address) as peer:

        async def status() -> HaStatus:
            return await peer.ask(GetBrokerHaStatus())

        async with made_slave(tmp_path, namesrv):
            await until_async(lambda: status(), wanted=lambda found: found.slaves_expected == 1)
        found = await until_async(lambda: status(), wanted=lambda found: bool(found.lost_slaves))
        assert found.lost_slaves is not None
        assert (await send(peer, "orders", bytes(1_000))).code == 0
        [lost] = (await status()).lost_slaves or []
        assert lost.diff >= 1_000
        assert lost.silent_millis is not None
        async with made_slave(tmp_path, namesrv):
            await until_async(lambda: status(), wanted=lambda found: not found.lost_slaves)
