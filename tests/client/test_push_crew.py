"""Who calls the handlers: as few as it takes, as many as are needed. The crews alone, without brokers."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rmqpy.client.push import workers
from rmqpy.client.push.workers import Crew, TaskCrew, ThreadCrew, Worker

PATIENCE_S = 30.0


class Line:
    """What waits, as an owned queue has it."""

    def __init__(self, crew: Crew["Line"]) -> None:
        self.crew = crew
        self.words: deque[str] = deque()

    def put(self, *words: str) -> None:
        self.words.extend(words)
        self.crew.put(self)


def doing(handle: Callable[[str], Any]) -> Callable[[Worker[Line], Line], Coroutine[Any, Any, None]]:
    """The work of calling `handle` with each word of a line, side by side where there is more than one."""

    async def work(worker: Worker[Line], line: Line) -> None:
        while worker.left > 0 and line.words:
            worker.left -= 1
            word = line.words.popleft()
            if line.words:
                line.crew.put_back(line)
            worker.began_at = time.monotonic()
            handle(word)

    return work


async def has_come(event: threading.Event) -> bool:
    return await asyncio.to_thread(event.wait, PATIENCE_S)


@pytest.mark.parametrize("is_put_at_once", [True, False], ids=["at once", "one by one"])
async def test_handlers_that_block_run_side_by_side_on_all_threads(is_put_at_once: bool) -> None:
    crew: Crew[Line] = ThreadCrew(8, "crew")
    everybody = threading.Barrier(8)
    left = threading.Semaphore(0)

    def handle(word: str) -> None:
        everybody.wait(PATIENCE_S)
        left.release()

    crew.start(doing(handle))
    line = Line(crew)
    if is_put_at_once:
        line.put(*"0123456789abcdef")
    else:
        for word in "0123456789abcdef":
            line.put(word)
            await asyncio.sleep(0)
    for _ in range(16):
        assert await asyncio.to_thread(left.acquire, True, PATIENCE_S)
    crew.dismiss()


async def test_a_stuck_handler_holds_up_nobody_elses_messages() -> None:
    crew: Crew[Line] = ThreadCrew(2, "crew")
    others, may_return, returned = threading.Event(), threading.Event(), threading.Event()
    seen: list[str] = []

    def handle(word: str) -> None:
        if word == "stuck":
            may_return.wait()
            returned.set()
            return
        seen.append(word)
        if word == "499":
            others.set()

    crew.start(doing(handle))
    words = [str(number) for number in range(500)]
    Line(crew).put("stuck", *words)
    assert await has_come(others)
    assert seen == words
    may_return.set()
    assert await has_come(returned)
    crew.dismiss()


async def test_slow_handlers_get_all_threads_even_if_none_of_them_looks_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "STUCK_S", 10 * PATIENCE_S)
    crew: Crew[Line] = ThreadCrew(4, "crew")
    everybody = threading.Event()
    threads: set[threading.Thread] = set()

    def handle(word: str) -> None:
        time.sleep(2 * workers.BRISK_S)
        threads.add(threading.current_thread())
        if len(threads) == 4:
            everybody.set()

    crew.start(doing(handle))
    Line(crew).put(*["slow"] * 100_000)
    assert await has_come(everybody)
    crew.dismiss()


async def test_a_message_that_comes_while_everybody_rests_is_taken() -> None:
    crew: Crew[Line] = ThreadCrew(3, "crew")
    taken = threading.Event()
    crew.start(doing(lambda _: taken.set()))
    line = Line(crew)
    for _ in range(200):
        line.put("word")
        assert await has_come(taken)
        taken.clear()
    crew.dismiss()


async def test_each_line_gets_its_turn_though_another_one_never_ends() -> None:
    crew: Crew[Line] = ThreadCrew(1, "crew")
    endless, other = Line(crew), Line(crew)
    seen = threading.Event()

    def handle(word: str) -> None:
        if word == "again":
            endless.words.append("again")
        else:
            seen.set()

    crew.start(doing(handle))
    endless.put("again", "again")
    other.put("word")
    assert await has_come(seen)
    crew.dismiss()


async def test_coroutines_run_side_by_side_in_all_tasks() -> None:
    crew: Crew[Line] = TaskCrew(5)
    inside, may_return, over = 0, asyncio.Event(), asyncio.Event()

    async def work(worker: Worker[Line], line: Line) -> None:
        nonlocal inside
        while line.words:
            line.words.popleft()
            if line.words:
                crew.put_back(line)
            inside += 1
            if inside == 5:
                may_return.set()
            if inside == 20:
                over.set()
            await may_return.wait()

    crew.start(work)
    await asyncio.sleep(0)
    Line(crew).put(*["word"] * 20)
    await asyncio.wait_for(over.wait(), PATIENCE_S)
    crew.dismiss()
