"""A broker killed while it is being written to keeps every message it acknowledged, in order and whole.

64 senders, each on a connection of its own, send as fast as they are answered; at a random moment the process gets
SIGKILL and is started again on what it left. Small segments make the log roll over while it happens. The number of
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
from rmqpy.protocol.codes import RequestCode
from wire import Peer

KILLS = int(os.environ.get("RMQPY_KILLS", "8"))
TOPIC = "killed"
#: So that files go while their end is in the spool: it holds four of them.
FILE_BYTES = 1 << 18


@pytest.mark.timeout(60 + 10 * KILLS)
@pytest.mark.parametrize(
    "setting", ["flushDiskType=ASYNC_FLUSH", "flushDiskType=SYNC_FLUSH", "commitLogWritePath=spool"]
)
async def test_what_was_acknowledged_survives_kills(tmp_path: Path, setting: str) -> None:
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
@pytest.mark.parametrize("setting", ["flushDiskType=ASYNC_FLUSH", "commitLogWritePath=spool"])
async def test_what_was_acknowledged_survives_kills_while_log_files_are_deleted(
    tmp_path: Path, setting: str
) -> None:
    """Everything expires immediately, and goes when that is asked for, which happens all the time."""
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    moments = random.Random(seed)
    # Nothing goes by itself, so that what is read back is there.
    never = f"deleteWhen={(datetime.now().hour + 12) % 24:02}"
    settings = (setting, "fileReservedTime=0", never, "diskMaxUsedSpaceRatio=95", "maxMessageSize=4096")
    settings += (f"mappedFileSizeCommitLog={FILE_BYTES}", "commitLogSpoolBytes=4194304")
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
    """Have expired files deleted again and again, until the broker is gone."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        async with await Peer.connect(address) as peer:
            while (answer := await peer.call(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0:
                pass
            raise AssertionError(answer)


async def test_the_spool_of_a_killed_broker_is_told_of_and_drained_without_a_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    acknowledged: Acknowledged = {}
    # Hardly anything is in the log itself.
    settings = ("commitLogWritePath=spool", "flushIntervalCommitLog=60000")
    broker = Broker.start(tmp_path, *settings)
    await load_until(broker.kill, broker.address, TOPIC, "spool", 0.4, acknowledged)
    assert cli.run(["store", "verify", str(tmp_path), "maxIndexNum=200000"]) == 0
    assert "note: spool" in capfd.readouterr().out
    assert cli.run(["store", "stats", str(tmp_path)]) == 0
    assert "may not be in the log" in capfd.readouterr().err
    assert cli.run(["store", "drain", str(tmp_path)]) == 0
    assert "are in the log now" in capfd.readouterr().out
    assert cli.run(["store", "verify", str(tmp_path), "maxIndexNum=200000"]) == 0
    assert "note: spool" not in capfd.readouterr().out
    broker = Broker.start(tmp_path)
    try:
        await audit(broker.address, TOPIC, acknowledged)
    finally:
        broker.kill()
