"""Backups of the brokers of a test, and what restored ones have."""

import asyncio
from pathlib import Path

import rmqpy
from rmqpy.backup.restore import verify
from rmqpy.backup.run import BackedUp, back_up
from rmqpy.config.client import ClientConfig
from rmqpy.server import Standalone
from rmqpy.testing import SMALL


def backed_up(namesrv: str, folder: Path, broker: str | None = None) -> BackedUp:
    """Run one backup."""
    return asyncio.run(back_up(ClientConfig(namesrv=namesrv), broker, folder))


def is_sound(folder: Path) -> bool:
    """Whether the backup matches its manifest and its log; what does not is printed."""
    found = verify(folder, lambda phase, done, total: None)
    print(found.damage, found.report and found.report["findings"])
    return found.is_sound


def serving(folder: Path) -> Standalone:
    """A server on a data folder."""
    return Standalone(folder, namesrv_port=0, broker_port=0, **SMALL)


def bodies(namesrv: str, topic: str, group: str = "reader", start_from: str = "earliest") -> list[str]:
    """The messages of a topic from the group's offsets on, without a commit."""
    with rmqpy.PullConsumer(group, namesrv, start_from=start_from) as consumer:
        consumer.assign(consumer.queues(topic))
        found: list[str] = []
        while messages := consumer.poll(timeout=1.0):
            found += [message.text() for message in messages]
    return found
