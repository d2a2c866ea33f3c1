"""Fixtures of the tests of commands."""

import logging
from collections.abc import Iterator

import pytest

from commandline import Run, runner
from rmqpy.server import Standalone


@pytest.fixture
def run(server: Standalone, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("produce", ...)` at the module's server: exit code, stdout, stderr."""
    return runner(server.namesrv, monkeypatch, capfd)


@pytest.fixture
def log() -> Iterator[None]:
    """The logger that commands set up, afterwards left as it was."""
    logger = logging.getLogger("rmqpy")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before
