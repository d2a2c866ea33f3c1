"""Schedules over a promotion: the new master goes on, with each occurrence once."""

from collections import Counter
from pathlib import Path

import pytest

import rmqpy
from broker.replicas import pair
from waiting import until_async

pytest.importorskip("cronsim")
pytestmark = pytest.mark.usefixtures("tries_soon")
NAMES = [f"s{number}" for number in range(5)]


async def test_a_promoted_slave_continues_with_each_occurrence_once(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.replicas.schedule_copy.SECONDS", 0.05)
    async with pair(tmp_path, namesrv) as (_, slave), rmqpy.AsyncAdmin(namesrv) as admin:
        await admin.create_topic("jobs", exist_ok=True)
        for name in NAMES:
            await admin.create_schedule(name, "jobs", b"x", every=1, catch_up="all")

        async def counts() -> Counter[tuple[str, int]]:
            found: Counter[tuple[str, int]] = Counter()
            async for each in admin.messages_between("jobs"):
                found[each.properties["SCHEDULE"], int(each.properties["SCHEDULED_MS"])] += 1
            return found

        await until_async(counts, lambda found: found.total() >= 10, seconds=30)
        copied = tmp_path / "slave" / "config" / "schedules.json"
        await until_async(lambda: copied.exists() and '"s4"' in copied.read_text(), seconds=30)
        await admin.promote("broker-a", 1)
        before = (await counts()).total()
        found = await until_async(counts, lambda found: found.total() >= before + 15, seconds=60)
        assert slave.address in {each.address for each in await admin.brokers() if each.broker_id == 0}
    assert set(found.values()) == {1}
    for name in NAMES:
        times = sorted(at_ms for sender, at_ms in found if sender == name)
        assert times == list(range(times[0], times[-1] + 1, 1_000)), f"{name} misses one of {times}"
