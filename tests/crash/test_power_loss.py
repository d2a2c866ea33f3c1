"""A broker whose disk loses power keeps acknowledged messages: all in sync mode, all but the end in async mode.

The store is on a separate ext4 file system (`loopback`), which is shut down while 64 senders send to a topic that
their first message created. Then the broker is killed, the file system remounted, the store verified unchanged,
and a broker started on it, which serves the audit and the next round.

A process survives this power loss by some milliseconds. Its acknowledgements in that time must hold, too, with one
exception: an msync in progress while ext4 is shut down may succeed although its pages are dropped.

The number of power losses with each flush mode and write path is `RMQPY_POWER_LOSSES`; the seed is printed, and
`RMQPY_SEED` repeats its moments. `make campaign-power` has many.
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
MAPPED = "commitLogWritePath=mapping"
#: Settings of both flush modes with either write path.
WRITE_PATHS = ((SYNC,), (), (SYNC, MAPPED), (MAPPED,))

pytestmark = pytest.mark.timeout(120 + 60 * LOSSES)


@pytest.mark.parametrize("settings", WRITE_PATHS, ids=lambda settings: " ".join(settings) or "defaults")
async def test_power_losses_lose_no_message_promised_as_durable(
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
    """Check that the store has no damage that the next start cannot repair."""
    store = StoppedStore(StoreConfig(root=str(disk.mount_point / "store"), index_entries=200_000))
    try:
        report = store.verify()
        assert not report["damage"], report["findings"]
    finally:
        store.release()
