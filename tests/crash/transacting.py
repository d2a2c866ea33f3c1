"""A producer with continuous transactions: `python transacting.py NAMESRV FILE NAME`, until it is killed.

The body of each message names its decision: `commit` and `rollback` end immediately, `asked-commit` and
`asked-rollback` are left to the broker's check, and `never` is not decided. A line of FILE is the body of a
half that the broker has acknowledged.
"""

import asyncio
import itertools
import sys
from pathlib import Path
from typing import IO

import rmqpy
from rmqpy import TransactionState, errors

TOPIC, GROUP = "transacted", "shop"
TASKS = 16
PAUSE_S = 0.05
#: What becomes of one message after the other.
FATES = (
    "commit", "commit", "rollback", "commit", "asked-commit",
    "commit", "commit", "rollback", "commit", "asked-rollback",
    "commit", "commit", "rollback", "commit", "asked-commit",
    "commit", "commit", "rollback", "commit", "never",
)  # fmt: skip


def fate(body: bytes) -> str:
    return body.decode().rpartition("/")[2]


def decide(message: rmqpy.ReceivedMessage) -> TransactionState:
    """The answer of every member of the group."""
    match fate(message.body):
        case "commit" | "asked-commit":
            return TransactionState.COMMIT
        case "rollback" | "asked-rollback":
            return TransactionState.ROLLBACK
    return TransactionState.UNKNOWN


async def transact(producer: rmqpy.AsyncProducer, acknowledged: IO[bytes], name: str) -> None:
    for number in itertools.count():
        word = FATES[number % len(FATES)]
        try:
            async with producer.transaction(TOPIC, f"{name}/{number}/{word}") as transaction:
                acknowledged.write(transaction.message.body + b"\n")
                if word == "rollback":
                    await transaction.rollback()
                elif word != "commit":
                    transaction.leave_unknown()
        except errors.RocketMQError:
            # The broker is away, or was when it should have answered: what became of this one it will ask.
            await asyncio.sleep(PAUSE_S)  # until the next attempt


async def main(namesrv: str, file: Path, name: str) -> None:
    with file.open("ab", buffering=0) as acknowledged:
        async with rmqpy.AsyncProducer(namesrv, group=GROUP, transaction_checker=decide) as producer:
            await asyncio.gather(
                *(transact(producer, acknowledged, f"{name}-{task}") for task in range(TASKS))
            )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
