"""Taskiq: asynchronous tasks, now and later.

Needs `pip install rmqpy[taskiq]` and a broker: `rmqpy standalone`. In two terminals:

    taskiq worker taskiq_app:broker
    python taskiq_app.py
"""

import asyncio
import os

from rmqpy.contrib.taskiq import RocketMQBroker

broker = RocketMQBroker(
    os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"), topic="example-taskiq", group="example-taskiq"
)


@broker.task
async def greet(name: str) -> None:
    """Greet someone, in the worker."""
    print(f"Hello {name}", flush=True)


async def main() -> None:
    """Send two tasks."""
    await broker.startup()
    await greet.kiq("Ada")
    await greet.kicker().with_labels(delay=1).kiq("Grace")
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
