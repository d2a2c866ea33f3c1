"""Fixtures of the tests of crashes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from crash.loopback import MountedImage, Unavailable


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[Callable[[str], MountedImage]]:
    """Create disks that can lose power, by name; the test is skipped if none can be mounted."""
    with ExitStack() as mounted:

        def make(name: str) -> MountedImage:
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            try:
                return mounted.enter_context(MountedImage(folder))
            except Unavailable as reason:
                pytest.skip(str(reason))

        yield make


@pytest.fixture
def disk(make_disk: Callable[[str], MountedImage]) -> MountedImage:
    """One of them."""
    return make_disk("")
