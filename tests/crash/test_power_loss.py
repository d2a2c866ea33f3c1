"""A broker whose disk loses its power keeps what it acknowledged: all of it in sync mode, all but an end in async mode.

The store lies on an ext4 file system of its own (`loopback`), which is shut down while 64 senders send to a topic that
their first message made. Then the broker is killed, the file system mounted again, the store verified as it was left,
and a broker started on it, which serves the audit and the next round.

A process outlives this loss of power by some milliseconds. What it acknowledges then has to be there, too, but for one
way: an msync that is under way while ext4 is shut down may succeed although its pages are dropped.

The number of power losses by each write path is `RMQPY_POWER_LOSSES`; the seed is printed, and `RMQPY_SEED` repeats its
moments. `make campaign-power` has many.
"""

import os
import random

import pytest

from crash.killable import Broker
from crash.loopback import MountedImage
from crash.traffic import Acknowledged, audit, load_until, read_topic, survivors
from rmqpy._native import StoppedStore
from rmqpy.config.store import StoreConfig

LOSSES = int(os.environ.get("RMQPY_POWER_LOSSES", "2"))

SYNC = "flushDiskType=SYNC_FLUSH"
MAPPED = "syncFlushMapped=true"
#: Settings by which the end of the log is written in every way there is.
WRITE_PATHS = ((SYNC,), (SYNC, MAPPED), (), ("commitLogWritePath=spool",))

pytestmark = pytest.mark.timeout(120 + 60 * LOSSES)


@pytest.mark.parametrize("settings", WRITE_PATHS, ids=lambda settings: " ".join(settings) or "defaults")
async def test_power_losses_take_nothing_that_was_promised_to_the_disk(
    disk: MountedImage, settings: tuple[str, ...]
) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    moments = random.Random(seed)
    acknowledged = lost = 0
    broker = Broker.start(disk.mount_point, *settings)
    try:
        for number in range(LOSSES):
            topic = f"power-{number}"
            sent, in_time = Acknowledged(), Acknowledged()

            def cut(
                broker: Broker = broker, sent: Acknowledged = sent, in_time: Acknowledged = in_time
            ) -> None:
                in_time.update(sent)
                disk.cut_power()
                broker.kill()

            await load_until(cut, broker.address, topic, "sender", moments.uniform(0.02, 0.4), sent)
            disk.unmount()
            disk.mount()
            assert_sound(disk)
            broker = Broker.start(disk.mount_point, *settings)
            acknowledged += len(sent)
            if SYNC in settings:
                await audit(broker.address, topic, in_time if MAPPED in settings else sent)
            else:
                lost += len(sent) - len(survivors(await read_topic(broker.address, topic), sent))
    finally:
        broker.kill()
    how = " ".join(settings) or "defaults"
    print(f"seed {seed}, {how}: {LOSSES} power losses, {acknowledged} acknowledged, {lost} of them lost")


def assert_sound(disk: MountedImage) -> None:
    """There is nothing wrong that the next start would not mend."""
    store = StoppedStore(StoreConfig(root=str(disk.mount_point / "store"), index_entries=200_000))
    try:
        report = store.verify()
        assert not report["damage"], report["findings"]
    finally:
        store.release()
