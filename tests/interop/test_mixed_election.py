"""A set of one broker of Apache's and one of ours, under our controller: each follows and replaces the other."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import servers
from .elected import ForeignSet, foreign_set, until

TOPIC = "orders"
APACHES, OURS = 1, 2

pytestmark = pytest.mark.timeout(400, func_only=True)


@pytest.fixture
def elected(originals: Callable[[str], Path], tmp_path: Path) -> Iterator[ForeignSet]:
    with (
        servers.rmqpy_name_server(tmp_path) as (namesrv, _),
        foreign_set(originals("apache"), tmp_path, namesrv, ours={OURS}) as elected,
    ):
        yield elected


def replace(elected: ForeignSet, killed: int) -> list[str]:
    """Kill the master, send to the other broker, and start the killed one; return the bodies of the messages."""
    other = APACHES + OURS - killed
    before = elected.send(TOPIC, 20, f"to {killed}")
    elected.kill(killed)
    elected.wait_master(other)
    elected.wait_accepting(other, TOPIC)
    after = elected.send(TOPIC, 20, f"instead to {other}")
    elected.start(killed)
    elected.wait_in_sync(APACHES, OURS)
    assert elected.master() == other
    return before + after


def test_brokers_of_both_kinds_replace_each_other_without_a_loss(elected: ForeignSet) -> None:
    elected.make_topic(TOPIC)
    sent = replace(elected, APACHES)
    sent += replace(elected, OURS)
    assert set(sent) <= elected.received(TOPIC)
    until(lambda: elected.log_end(APACHES) == elected.log_end(OURS))
    until(lambda: elected.log_of(APACHES) == elected.log_of(OURS))
