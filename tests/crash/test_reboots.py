"""A killed broker whose machine then starts again keeps what its flush mode promises.

The store is on a file system that can lose power (`loopback`). In each round 64 senders send until the broker is
killed; in every second round the power fails first, so that unwritten pages are gone. Then the broker starts with
another boot id, as after a start of the machine: it must not believe what the write ring's marks say of the page
cache, only what the checksums in the ring show.

The number of starts with each flush mode is `RMQPY_REBOOTS`; the seed is printed, and `RMQPY_SEED` repeats its moments.
"""

import os
import random
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from crash.killable import Broker
from crash.loopback import MountedImage
from crash.traffic import Acknowledged, audit, load_until, read_topic, survivors

REBOOTS = int(os.environ.get("RMQPY_REBOOTS", "4"))
BOOT_ID = "/proc/sys/kernel/random/boot_id"
SYNC = "flushDiskType=SYNC_FLUSH"

pytestmark = pytest.mark.timeout(120 + 60 * REBOOTS)


def new_boot(folder: Path) -> Sequence[str]:
    """A launcher whose program sees a new boot id: the file of the kernel is covered in a mount namespace."""
    file = folder / "boot_id"
    file.write_text(f"{uuid.uuid4()}\n")
    cover = f'mount --bind "$0" {BOOT_ID} && exec "$@"'
    launcher = ("unshare", "--mount", "--propagation", "private", "sh", "-c", cover, str(file))
    seen = subprocess.run((*launcher, "cat", BOOT_ID), capture_output=True, text=True, check=False)
    if seen.stdout != file.read_text():
        pytest.skip(f"needs mount namespaces: {seen.stderr.strip()}")
    return launcher


@pytest.mark.parametrize("settings", [(SYNC,), ()], ids=lambda settings: " ".join(settings) or "defaults")
async def test_restarts_of_the_machine_lose_no_message_promised_as_durable(
    disk: MountedImage, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    seed = int(os.environ.get("RMQPY_SEED", random.randrange(1 << 32)))
    moments = random.Random(seed)
    acknowledged = lost = 0
    broker = Broker.start(disk.mount_point, *settings, launcher=new_boot(tmp_path))
    try:
        for number in range(REBOOTS):
            has_power = number % 2 == 0
            topic = f"reboot-{number}"
            sent = Acknowledged()

            def end(broker: Broker = broker, has_power: bool = has_power) -> None:
                if not has_power:
                    disk.cut_power()
                broker.kill()

            await load_until(end, broker.address, topic, "sender", moments.uniform(0.02, 0.4), sent)
            disk.unmount()
            disk.mount()
            broker = Broker.start(disk.mount_point, *settings, launcher=new_boot(tmp_path))
            acknowledged += len(sent)
            if has_power or SYNC in settings:
                await audit(broker.address, topic, sent)
            else:
                lost += len(sent) - len(survivors(await read_topic(broker.address, topic), sent))
    finally:
        broker.kill()
    how = " ".join(settings) or "defaults"
    print(
        f"seed {seed}, {how}: {REBOOTS} restarts, {acknowledged} acknowledged, {lost} of them lost with the power"
    )
