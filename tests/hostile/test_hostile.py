"""Attacks on a broker and its name server in a separate process: each ends as expected, without harm to other clients.

`pytest tests/hostile -s` prints the tables; `make campaign-hostile` measures the latency of others during each case.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from hostile.attack import HEADING, Row, attack, misbehave
from hostile.cases import BYTES, REQUESTS
from hostile.citizen import Citizen
from hostile.target import Target, running

#: The longest that the well-behaved client may wait for one reply. Not a performance limit, because attackers load the
#: machine too: it shows that no client is locked out.
WAIT_MAX = 15.0


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with running(tmp_path_factory.mktemp("hostile")) as target:
        yield target
    assert not Path("/hostile").exists()


def check(target: Target, rows: Iterable[Row]) -> None:
    """Print the rows as they end; all must be as expected, and a well-behaved client must have been served
    meanwhile."""
    citizen = Citizen(target)
    wrong = []
    print(f"\n{HEADING}")
    with citizen.about():
        for row in rows:
            print(row)
            if not row.is_right:
                wrong.append(row)
    assert not wrong, "\n" + "\n".join(f"{row}: should be {row.expected}" for row in wrong)
    assert not citizen.failures
    assert max(citizen.waits) < WAIT_MAX


def test_there_are_enough_attacks() -> None:
    names = [case.name for case in (*BYTES, *REQUESTS)]
    assert len(names) >= 200
    assert len(set(names)) == len(names)


@pytest.mark.timeout(300)
def test_invalid_frames(target: Target) -> None:
    check(target, attack(target, BYTES))


@pytest.mark.timeout(300)
def test_useless_requests(target: Target) -> None:
    check(target, attack(target, REQUESTS))


@pytest.mark.timeout(300)
def test_peers_that_misbehave(target: Target) -> None:
    check(target, misbehave(target))
