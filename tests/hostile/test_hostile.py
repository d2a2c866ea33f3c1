"""Attacks on a broker and its name server in a process of their own: each ends as it should, and harms no other client.

`pytest tests/hostile -s` prints the tables; the command in `attack.py` does the same to any broker.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from hostile.attack import HEADING, Citizen, Row, Target, attack, misbehave, parsed
from hostile.cases import BYTES, REQUESTS

#: Longest that the good citizen may wait for one answer. Not a measure of performance: the machine is busy with the
#: attackers too. It says that no client is locked out.
WAIT_MAX = 5.0

SERVER = """
import asyncio, sys
from rmqpy.server import Standalone, serve

server = Standalone(sys.argv[1], namesrv_port=0, broker_port=0, mappedFileSizeCommitLog=16 << 20)
asyncio.run(serve(server, lambda: print(server.broker, server.namesrv, flush=True)))
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("hostile")
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(folder / "data")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        broker, namesrv = process.stdout.readline().split()
        target = Target(parsed(broker), parsed(namesrv), process.pid)
        target.prepare()
        yield target
        process.terminate()
        assert process.wait(30) == 0, "it stops in order after all that"
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
    assert len(BYTES) + len(REQUESTS) >= 200
    assert len({case.name for case in (*BYTES, *REQUESTS)}) == len(BYTES) + len(REQUESTS)


@pytest.mark.timeout(300)
def test_bytes_that_are_no_frames(target: Target) -> None:
    check(target, attack(target, BYTES))


@pytest.mark.timeout(300)
def test_requests_nobody_could_want(target: Target) -> None:
    check(target, attack(target, REQUESTS))


@pytest.mark.timeout(300)
def test_peers_that_misbehave(target: Target) -> None:
    check(target, misbehave(target))
