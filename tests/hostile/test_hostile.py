"""Attacks on a broker and its name server in a process of their own: each ends as it should, and harms no other client.

`pytest tests/hostile -s` prints the tables; `make campaign-hostile` measures how long others wait beside each case.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from hostile.attack import HEADING, Row, attack, misbehave
from hostile.cases import BYTES, REQUESTS
from hostile.citizen import Citizen
from hostile.target import Target, running

#: Longest that the good citizen may wait for one answer. Not a measure of performance: the machine is busy with the
#: attackers too. It says that no client is locked out.
WAIT_MAX = 15.0


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with running(tmp_path_factory.mktemp("hostile")) as target:
        yield target
    assert not Path("/hostile").exists()


def check(target: Target, rows: Iterable[Row]) -> None:
    """Print the rows as they come; all must be right, and a good citizen must have been served meanwhile."""
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
def test_bytes_that_are_no_frames(target: Target) -> None:
    check(target, attack(target, BYTES))


@pytest.mark.timeout(300)
def test_requests_nobody_could_want(target: Target) -> None:
    check(target, attack(target, REQUESTS))


@pytest.mark.timeout(300)
def test_peers_that_misbehave(target: Target) -> None:
    check(target, misbehave(target))
