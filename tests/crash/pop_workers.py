"""Workers that pop, acknowledge and forget messages, in a process that a test can kill:
`python -m crash.pop_workers ADDRESS_FILE NOTES SETTINGS`.

ADDRESS_FILE has the address of the broker, which may change; a worker that loses its connection reads it again. Each
line of NOTES is an event, written before the worker goes on: what a killed process did is in its file. SETTINGS are
JSON, the fields of `Settings`. Times are wall-clock milliseconds, as in the broker's answers.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from broker.popping import Popped, ack, batch_ack, messages, pop
from wire import Peer

#: Pause before the next attempt to connect, or after a refusal.
PAUSE_S = 0.05
MESSAGES_MAX = 16


@dataclass(frozen=True)
class Settings:
    """The behaviour of the workers of a process."""

    workers: int
    invisible_ms: int
    is_ordered: bool = False
    #: Of 100 messages, those that a worker forgets.
    forgotten_percent: int = 0
    #: A worker ends when it has waited for a message for so long; 0: it does not end.
    empty_ms: int = 0


def name_of(body: bytes) -> str:
    """The sender of a message, and its number."""
    return b"/".join(body.split(b"/")[:2]).decode()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Notes:
    """The events of the workers of one process."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def popped(self, found: list[Popped]) -> None:
        rows = [[name_of(each.body), each.queue_id, each.offset, _popped_ms(each)] for each in found]
        self._write("popped", rows)

    def acknowledged(self, found: Iterable[Popped]) -> None:
        self._write("acknowledged", _keys(found), now_ms())

    def forgotten(self, found: Iterable[Popped]) -> None:
        self._write("forgotten", _keys(found))

    def _write(self, event: str, *of: object) -> None:
        os.write(self._file, json.dumps([event, *of]).encode() + b"\n")


def _popped_ms(message: Popped) -> int:
    return int(message.handle.split(" ")[1])


def _keys(found: Iterable[Popped]) -> list[list[object]]:
    return [[name_of(each.body), _popped_ms(each)] for each in found]


async def work(address_file: Path, notes: Notes, settings: Settings, chance: random.Random) -> None:
    """One worker: it connects again whenever it loses its broker."""
    while True:
        try:
            async with await Peer.connect(_address(address_file)) as peer:
                while await _work_once(peer, notes, settings, chance):
                    pass
                return
        except (OSError, asyncio.IncompleteReadError):
            # Until the broker is back.
            await asyncio.sleep(PAUSE_S)


def _address(file: Path) -> str:
    return file.read_text()


async def _work_once(peer: Peer, notes: Notes, settings: Settings, chance: random.Random) -> bool:
    order = str(settings.is_ordered).lower()
    wait_ms = settings.empty_ms or 1_000
    began = time.monotonic()
    answer = await pop(peer, MESSAGES_MAX, invisible=settings.invisible_ms, wait=wait_ms, order=order)
    found = messages(answer)
    if not found:
        is_over = bool(settings.empty_ms) and (time.monotonic() - began) * 1_000 > settings.empty_ms * 0.8
        if not is_over:
            # The broker may have refused the request: it starts, or is a slave.
            await asyncio.sleep(PAUSE_S)
        return not is_over
    notes.popped(found)
    forgotten = [each for each in found if chance.randrange(100) < settings.forgotten_percent]
    kept = [each for each in found if each not in forgotten]
    if forgotten:
        notes.forgotten(forgotten)
    if settings.is_ordered:
        chance.shuffle(kept)
    if len(kept) > 1 and chance.random() < 0.5:
        if (await batch_ack(peer, *kept)).code == 0:
            notes.acknowledged(kept)
        return True
    for message in kept:
        if (await ack(peer, message)).code == 0:
            notes.acknowledged([message])
    return True


async def main(address_file: Path, notes: Path, settings: Settings) -> None:
    chance, written = random.Random(notes.name), Notes(notes)
    await asyncio.gather(*(work(address_file, written, settings, chance) for _ in range(settings.workers)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), Settings(**json.loads(sys.argv[3]))))
