"""The Taskiq broker with Taskiq's own receiver."""

import asyncio
import time

import pytest
from taskiq import InMemoryBroker
from taskiq.api import run_receiver_task

import rmqpy
from rmqpy.contrib.taskiq import RocketMQBroker
from rmqpy.server import Standalone
from waiting import until_async


async def test_tasks_run_once_and_delayed_ones_on_time(server: Standalone) -> None:
    broker = RocketMQBroker(server.namesrv)
    # Results stay in this process.
    broker = broker.with_result_backend(InMemoryBroker().result_backend)
    ran: list[tuple[str, float]] = []

    @broker.task(task_name="greet")
    async def greet(name: str) -> str:
        ran.append((name, time.time()))
        return f"Hello {name}"

    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    try:
        task = await greet.kiq("Ada")
        result = await task.wait_result(timeout=60)
        assert result.return_value == "Hello Ada"
        due = time.time() + 0.5
        await greet.kicker().with_labels(delay=0.5).kiq("Grace")
        await until_async(lambda: len(ran) == 2)
        assert ran[1][1] >= due
        with rmqpy.Admin(server.namesrv) as admin:
            await until_async(lambda: not any(row.lag or row.in_flight for row in admin.progress("taskiq")))
    finally:
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        await broker.shutdown()
    assert [name for name, _ in ran] == ["Ada", "Grace"]
