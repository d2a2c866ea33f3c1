"""Brokers with a console."""

from collections.abc import Iterator

import pytest

from rmqpy.server import Standalone
from rmqpy.testing import broker


@pytest.fixture(scope="module")
def reading() -> Iterator[Standalone]:
    with broker(httpPort=0) as server:
        yield server


@pytest.fixture(scope="module")
def changing() -> Iterator[Standalone]:
    with broker(httpPort=0, httpAllowChanges=True) as server:
        yield server
