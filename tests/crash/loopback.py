"""A file system in a file that can lose its power: ext4 on a loop device.

A power loss is `FS_IOC_SHUTDOWN` without a flush of the journal: from that moment nothing reaches the image, and
unwritten data is gone, as the next mount shows. Needs root, loop devices and `mkfs.ext4`; entering a `MountedImage`
without them raises `Unavailable`.
"""

import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

#: `_IOR('X', 125, __u32)`, and its argument that leaves the journal as it is.
_FS_IOC_SHUTDOWN: Final = 0x8004587D
_WITHOUT_JOURNAL: Final = 2
_IMAGE_BYTES: Final = 1 << 30
#: How long the kernel may take to let go of a device that is not mounted any more.
_DETACHED_S: Final = 30.0


class Unavailable(Exception):
    """There can be no such file system here; the text says why."""


class MountedImage:
    """A mounted image below `folder`; gone once left."""

    def __init__(self, folder: Path, size: int = _IMAGE_BYTES) -> None:
        self._size = size
        self._file = folder / "disk.img"
        self.mount_point = folder / "disk"

    def mount(self) -> None:
        """Mount it; the journal is replayed where the power was cut."""
        _run("mount", "-o", "loop", str(self._file), str(self.mount_point))

    def unmount(self) -> None:
        """Nothing may have a file open there any more.

        A mount namespace that another program made meanwhile has the file system still, as it was when the power was
        cut: mounting it again would bring that back. Raises `RuntimeError`.
        """
        _run("umount", str(self.mount_point))
        until = time.monotonic() + _DETACHED_S
        while subprocess.run(("losetup", "--associated", self._file), check=True, capture_output=True).stdout:
            if time.monotonic() > until:
                raise RuntimeError(f"{self._file} is still mounted, in another mount namespace")
            time.sleep(0.01)  # the kernel detaches it later and shows no event

    def cut_power(self) -> None:
        """From now on nothing is written, and every write and sync fails."""
        root = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(root, _FS_IOC_SHUTDOWN, struct.pack("I", _WITHOUT_JOURNAL))
        finally:
            os.close(root)

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise Unavailable("a file system of its own needs root")
        with self._file.open("wb") as file:
            file.truncate(self._size)
        self.mount_point.mkdir()
        try:
            _run("mkfs.ext4", "-q", "-F", str(self._file))
            self.mount()
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unavailable(f"needs mkfs.ext4 and loop devices: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.path.ismount(self.mount_point):
            self.unmount()
        self._file.unlink()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
