"""Fixtures of the tests of commands."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def log() -> Iterator[None]:
    """The logger that commands set up, afterwards left as it was."""
    logger = logging.getLogger("rmqpy")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before
