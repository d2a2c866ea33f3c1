"""Fixtures of the tests of crashes."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from crash.loopback import MountedImage, Unavailable


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MountedImage]:
    """A disk that can lose its power; the test is skipped where none can be mounted."""
    with ExitStack() as mounted:
        try:
            image = mounted.enter_context(MountedImage(tmp_path))
        except Unavailable as reason:
            pytest.skip(str(reason))
        yield image
