"""Causes: a problem that fails several checks has one entry."""

import pytest

from rmqpy import findings
from rmqpy.admin.causes import by_cause
from rmqpy.admin.checks import REFUSES, CheckResult

MASTER, SLAVE = "10.0.0.2:10911", "10.0.0.3:10911"
AWAY = CheckResult(f"broker broker-a at {SLAVE}", "bad", f"{SLAVE} did not answer in time", "start it")
SILENT = CheckResult("slave 1 of broker-a", "bad", *findings.silent_slave("broker-a", SLAVE, 40.0, 10))
FEW = CheckResult("replicas of broker-a", "warn", *findings.few_slaves(0, 1))
WELL = CheckResult("name server 10.0.0.1:9876", "ok", "knows 1 broker")


def checks_of(found: list[CheckResult]) -> list[str]:
    return [each.check for each in found]


@pytest.mark.parametrize("order", [[AWAY, FEW, SILENT], [SILENT, AWAY, FEW]], ids=["first", "last"])
def test_paused_slave_is_one_problem(order: list[CheckResult]) -> None:
    found = by_cause([WELL, *order])
    assert checks_of(found) == [WELL.check, SILENT.check]
    assert found[1].found == f"{SILENT.found}; {FEW.found}"
    assert (found[1].level, found[1].advice) == ("bad", SILENT.advice)


def test_refusal_for_lack_of_a_slave_is_said_with_the_slave() -> None:
    short = CheckResult("replicas of broker-a", "bad", *findings.few_copies(1, 2, refuses=True))
    refuses = CheckResult(f"broker broker-a at {MASTER}", "bad", REFUSES, short.advice)
    [found] = by_cause([refuses, short, AWAY, SILENT])
    assert found.check == SILENT.check
    assert "messages are refused" in found.found


def test_silent_master_is_one_problem() -> None:
    lost = CheckResult(
        "master of broker-a", "bad", *findings.no_master("broker-a", 1, MASTER, 12.0, acts=False)
    )
    away = CheckResult(f"broker broker-a at {MASTER}", "bad", f"{MASTER} did not answer in time", "start it")
    assert by_cause([away, lost]) == [lost]


def test_full_disk_is_one_problem() -> None:
    full = CheckResult("disk of broker-a", "bad", *findings.no_room("broker-a", "/data", 96.0, 0))
    assert by_cause([CheckResult(f"broker broker-a at {MASTER}", "bad", REFUSES, full.advice), full]) == [
        full
    ]


@pytest.mark.parametrize(
    "other",
    [
        AWAY._replace(check=f"broker broker-b at {SLAVE}"),
        AWAY._replace(check=f"broker broker-a at {SLAVE}1"),
        AWAY._replace(check="broker broker-a at 0.0.3:10911"),
        FEW._replace(check="replicas of broker-b"),
        CheckResult("clock of broker-a", "bad", "its clock is 20 s ahead", "synchronize it"),
    ],
    ids=lambda other: other.check,
)
def test_other_problems_stay(other: CheckResult) -> None:
    assert by_cause([other, SILENT]) == [other, SILENT]
