"""File systems in memory, for tests that fill a disk."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tmpfs(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system of `size` bytes at a new folder; skip the test where that is not permitted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system of its own needs root")
    try:
        yield folder
    finally:
        # Files of a store are mapped as long as its objects live.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
