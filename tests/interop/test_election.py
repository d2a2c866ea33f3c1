"""Brokers of ours under Apache's controller: one takes the place of another without an operator and without a loss."""

from collections.abc import Callable
from pathlib import Path

from campaigns.election.controller_kills import run
from campaigns.election.elected_set import ElectedSet


def test_a_pair_survives_a_killed_and_a_stopped_master(
    originals: Callable[[str], Path], tmp_path: Path
) -> None:
    elected = ElectedSet(tmp_path, 2, 1, originals("apache"), controllerHeartBeatTimeoutMills=3_000)
    assert run(elected, ["kill", "stop"], 2), "an acknowledged message is lost"
