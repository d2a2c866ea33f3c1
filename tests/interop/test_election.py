"""Brokers of ours under Apache's controllers: one takes the place of another without an operator and without a loss."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from campaigns.election import rounds
from campaigns.election.controller_kills import FAULTS
from campaigns.election.elected_set import ElectedSet

pytestmark = pytest.mark.timeout(300, func_only=True)


def survives(elected: ElectedSet, *faults: str) -> bool:
    """Whether no acknowledged message is lost, and the replicas are in sync after each fault."""
    with rounds.showing_logs(elected), ExitStack() as undo:
        elected.start(undo)
        return rounds.run(elected, faults, lambda fault: FAULTS[fault](elected))


@pytest.mark.parametrize("kind", ["DLedger", "jRaft"])
def test_a_pair_survives_a_killed_and_a_stopped_master(
    kind: str, originals: Callable[[str], Path], tmp_path: Path
) -> None:
    elected = ElectedSet(
        tmp_path, 2, 1, originals("apache"), is_jraft=kind == "jRaft", controllerHeartBeatTimeoutMills=3_000
    )
    assert survives(elected, "kill", "stop")


def test_a_pair_learns_of_elections_without_notifications(
    originals: Callable[[str], Path], tmp_path: Path
) -> None:
    elected = ElectedSet(
        tmp_path,
        2,
        1,
        originals("apache"),
        controller_settings={"notifyBrokerRoleChanged": "false"},
        controllerHeartBeatTimeoutMills=3_000,
        # A slave asks soon after it has lost its master, whatever the interval.
        syncBrokerMetadataPeriod=60_000,
    )
    assert survives(elected, "kill")
