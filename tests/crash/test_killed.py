"""A broker killed during writes keeps every acknowledged message, in order and whole.

64 senders, each on its own connection, send as fast as they are answered; at a random moment the process gets
SIGKILL and is restarted on its files. Small segments make the log roll over meanwhile. The number of
kills is `RMQPY_KILLS`; the seed of the moments is printed, and `RMQPY_SEED` repeats them.
"""

import asyncio
import os
import random
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest

from crash.killable import Broker
from crash.traffic import SENDERS, Acknowledged, audit, audit_kept, load_until
from rmqpy import cli
from rmqpy.cli.mq import shutdown
from rmqpy.protocol.codes import RequestCode
from wire import Peer

KILLS = int(os.environ.get("RMQPY_KILLS", "8"))
TOPIC = "killed"
#: So that files go while their end is in the write ring: it holds four of them.
FILE_BYTES = 1 << 18


@pytest.mark.timeout(60 + 10 * KILLS)
@pytest.mark.parametrize(
    "setting", ["flushDiskType=ASYNC_FLUSH", "flushDiskType=SYNC_FLUSH", "commitLogWritePath=mapping"]
)
async def test_acknowledged_messages_survive_kills(tmp_path: Path, setting: str) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    moments = random.Random(seed)
    acknowledged: Acknowledged = {}
    count = 0
    broker = Broker.start(tmp_path, setting)
    try:
        for kill in range((KILLS + 1) // 2):
            moment = moments.uniform(0.05, 0.4)
            await load_until(broker.kill, broker.address, TOPIC, f"round-{kill}", moment, acknowledged)
            broker = Broker.start(tmp_path, setting)
            count = await audit(broker.address, TOPIC, acknowledged)
    finally:
        broker.kill()
    print(
        f"seed {seed}, {setting}: {len(acknowledged)} acknowledged, {count} stored, {(KILLS + 1) // 2} kills"
    )
    assert len(acknowledged) > KILLS * SENDERS


@pytest.mark.timeout(60 + 10 * KILLS)
@pytest.mark.parametrize(
    "setting", ["flushDiskType=ASYNC_FLUSH", "flushDiskType=SYNC_FLUSH", "commitLogWritePath=mapping"]
)
async def test_acknowledged_messages_survive_kills_while_log_files_are_deleted(
    tmp_path: Path, setting: str
) -> None:
    """Everything expires immediately, and goes when that is asked for, which happens all the time."""
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    moments = random.Random(seed)
    # Nothing is deleted automatically, so that messages read back exist.
    never = f"deleteWhen={(datetime.now().hour + 12) % 24:02}"
    settings = (setting, "fileReservedTime=0", never, "diskMaxUsedSpaceRatio=95", "maxMessageSize=4096")
    settings += (f"mappedFileSizeCommitLog={FILE_BYTES}", "commitLogRingBytes=4194304")
    acknowledged: Acknowledged = {}
    begin = 0
    broker = Broker.start(tmp_path, *settings)
    try:
        for kill in range((KILLS + 1) // 2):
            moment = moments.uniform(0.2, 0.6)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(delete_until_the_end(broker.address))
                await load_until(broker.kill, broker.address, TOPIC, f"round-{kill}", moment, acknowledged)
            broker = Broker.start(tmp_path, *settings)
            begin = await audit_kept(broker.address, TOPIC, acknowledged, FILE_BYTES)
    finally:
        broker.kill()
    print(f"seed {seed}, {setting}: {len(acknowledged)} acknowledged, the log begins at {begin}")
    assert begin > 0, "no file was deleted"


async def delete_until_the_end(address: str) -> None:
    """Have expired files deleted repeatedly, until the broker is killed."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        async with await Peer.connect(address) as peer:
            while (answer := await peer.call(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0:
                pass
            raise AssertionError(answer)


@pytest.mark.parametrize("by_shutdown", [False, True])
async def test_write_ring_of_a_killed_broker_is_reported_and_drained_offline(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, by_shutdown: bool
) -> None:
    acknowledged: Acknowledged = {}
    # Hardly anything is in the log itself.
    broker = Broker.start(tmp_path, "flushIntervalCommitLog=60000")
    await load_until(broker.kill, broker.address, TOPIC, "ring", 0.4, acknowledged)
    assert cli.run(["store", "verify", str(tmp_path), "maxIndexNum=200000"]) == 0
    assert "note: ring" in capfd.readouterr().out
    assert cli.run(["store", "stats", str(tmp_path)]) == 0
    assert "may not be in the log" in capfd.readouterr().err
    copied = tmp_path / "copied"
    assert cli.run(["store", "copy", str(tmp_path), "--to", str(copied)]) == 0
    assert "may not be in the log" in capfd.readouterr().err
    folder = tmp_path / "broker.conf"
    folder.write_text(f"storePathRootDir={tmp_path}/store\n")
    if by_shutdown:
        # Brokers of other tests are not to be stopped.
        monkeypatch.setattr(shutdown, "running", lambda _: ())
        assert cli.run_command(shutdown.command, "mqshutdown", ["broker", "-c", str(folder)]) == 1
    else:
        assert cli.run(["store", "drain", str(tmp_path)]) == 0
    assert "into the log" in capfd.readouterr().out
    assert cli.run(["store", "verify", str(tmp_path), "maxIndexNum=200000"]) == 0
    assert "note: ring" not in capfd.readouterr().out
    broker = Broker.start(tmp_path)
    try:
        await audit(broker.address, TOPIC, acknowledged)
    finally:
        broker.kill()
