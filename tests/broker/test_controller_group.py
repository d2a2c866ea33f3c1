"""Three brokers of one name under three controllers: the loss of the leading controller, also with the master.

The servers are processes, because a test kills them.
"""

import time
from collections.abc import Iterator

import pytest

from broker.elected import QUEUES, TOPIC, revived, started
from campaigns.election.elected_set import ElectedSet
from campaigns.election.senders import Senders

SENDERS = 4
#: Sends that are accepted before and after a loss.
SENDS = 50
WAIT_S = 60.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElectedSet]:
    elected = ElectedSet(
        tmp_path_factory.mktemp("group"), replicas=3, count=3, controllerHeartBeatTimeoutMills=3_000
    )
    yield from started(elected)


@pytest.fixture
def elected(running: ElectedSet) -> Iterator[ElectedSet]:
    yield from revived(running)


def test_a_master_goes_on_after_the_leading_controller_is_lost(elected: ElectedSet) -> None:
    with Senders(elected.namesrv.address, TOPIC, SENDERS) as senders:
        senders.wait_for(SENDS, WAIT_S)
        master, killed = elected.master(), elected.leader()
        killed.kill()
        senders.wait_for(SENDS, WAIT_S)
        assert elected.leader() is not killed
        assert elected.master() is master
    stored = elected.stored(TOPIC, QUEUES)
    assert [body for body in senders.acknowledged if body not in stored] == []


def test_another_master_is_elected_when_the_leading_controller_and_the_master_are_lost(
    elected: ElectedSet,
) -> None:
    with Senders(elected.namesrv.address, TOPIC, SENDERS) as senders:
        senders.wait_for(SENDS, WAIT_S)
        master, killed = elected.master(), elected.leader()
        killed.kill()
        master.kill()
        began = time.monotonic()
        senders.wait_for(SENDS, WAIT_S)
        print(f"accepted again after {time.monotonic() - began:.1f} s")
        assert elected.master() is not master
        killed.start()
        master.start()
        elected.wait_in_sync()
    stored = elected.stored(TOPIC, QUEUES)
    assert [body for body in senders.acknowledged if body not in stored] == []
    elected.wait_equal()


def test_a_controller_that_lost_its_folder_copies_it_from_the_others(elected: ElectedSet) -> None:
    leader = elected.leader()
    lost, other = (each for each in elected.controllers if each is not leader)
    lost.kill()
    for file in (lost.folder / "store").iterdir():
        file.unlink()
    lost.start()
    lost.wait()
    master = elected.master()
    # Of the two that are left, each change needs both.
    other.kill()
    assert elected.leader() in (leader, lost)
    assert elected.master() is master
    leader.kill()
    other.start()
    assert elected.leader() in (other, lost)
    assert elected.master() is master
