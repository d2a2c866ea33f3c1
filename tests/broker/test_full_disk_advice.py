"""Advice for a full disk: shorter retention is advised only if it deletes a file."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from broker.conftest import made_broker
from broker.talk import send
from broker.test_cleaning import BODY, TINY_FILES
from rmqpy.findings import FREE_BYTES_MIN, OldestFile, make_room, no_room
from rmqpy.protocol import troubles
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.testing import HandClock
from tmpfs import tmpfs
from wire import TIMEOUT_S, Peer

MIB = 1 << 20


async def advice_on_a_full_disk(tmp_path: Path, namesrv: str, messages: int, hours: float) -> tuple[str, str]:
    """What a broker advises when the disk fills up behind some messages, and some time later."""
    clock = HandClock()
    with tmpfs(tmp_path / "store", 400 * MIB) as folder:
        async with (
            made_broker(tmp_path, namesrv, TINY_FILES, clock) as broker,
            await Peer.connect(broker.address) as peer,
        ):
            for _ in range(messages):
                assert (await send(peer, "orders", BODY)).code == 0
            with (folder / "other").open("wb") as other:
                os.posix_fallocate(other.fileno(), 0, os.statvfs(folder).f_bavail * 4_096 - 32 * MIB)

            async def advice() -> str:
                async with asyncio.timeout(TIMEOUT_S):
                    while True:
                        table = (await peer.ask(GetBrokerRuntimeInfo())).table
                        for each in troubles.read(table):
                            if each.check == "disk of broker-a":
                                return each.finding.advice

            early = await advice()
            await asyncio.to_thread(clock.advance, 3_600 * hours)
            return early, await advice()


async def test_retention_is_advised_once_it_deletes_a_file(tmp_path: Path, namesrv: str) -> None:
    early, late = await advice_on_a_full_disk(tmp_path, namesrv, messages=10, hours=31)
    assert re.search(r"the oldest file of the log is \d+ s old, so shorter retention frees nothing", early)
    assert "fileReservedTime" not in early
    assert "cleanFileForciblyEnable=true" in early
    assert "fileReservedTime=15 deletes files whose messages are older than 15 hours" in late
    assert "the oldest is 31 hours old" in late


async def test_file_that_is_being_written_is_not_deleted_by_any_setting(tmp_path: Path, namesrv: str) -> None:
    for advice in await advice_on_a_full_disk(tmp_path, namesrv, messages=1, hours=31):
        assert "the log is one file, which is being written, so shorter retention frees nothing" in advice
        assert "rmqpy config set" not in advice


@pytest.mark.parametrize(
    ("oldest", "expected"),
    [
        (None, "fileReservedTime=24 deletes"),
        (OldestFile(3_599, 72), "is 60 min old"),
        (
            OldestFile(3_600, 72),
            "fileReservedTime=1 deletes files whose messages are older than 60 min, and the oldest is",
        ),
        (OldestFile(73 * 3_600, 72), "expired files are deleted"),
        (OldestFile(5, 0), "expired files are deleted"),
    ],
)
def test_advice_depends_on_the_oldest_file(oldest: OldestFile | None, expected: str) -> None:
    assert expected in make_room("broker-a", 96.0, oldest)


def test_limit_is_raised_only_where_that_accepts_messages() -> None:
    young, file = OldestFile(60, 72), 1 << 30
    raised = "diskSpaceWarningLevelRatio=100"
    assert raised in no_room("a", "/data", 92.0, FREE_BYTES_MIN + file, young).advice
    assert raised not in no_room("a", "/data", 92.0, FREE_BYTES_MIN + file - 1, young).advice
    assert raised not in no_room("a", "/data", 53.0, FREE_BYTES_MIN + file, young).advice
    assert raised not in no_room("a", "/data", 92.0, FREE_BYTES_MIN + file).advice


def test_settings_take_effect_at_the_present_usage() -> None:
    assert "cleanFileForciblyEnable=true diskSpaceCleanForciblyRatio=53 " in make_room(
        "a", 53.9, OldestFile(60, 72)
    )
    assert "cleanFileForciblyEnable=true deletes" in make_room("a", 85.0, OldestFile(60, 72))
    assert "fileReservedTime=5 diskMaxUsedSpaceRatio=53 " in make_room("a", 53.9, OldestFile(36_000, 72))
    assert "fileReservedTime=5 deletes" in make_room("a", 75.0, OldestFile(36_000, 72))
