"""Worker pools: as few workers as possible, as many as needed. The pools alone, without brokers."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rmqpy.client.push import worker_pool
from rmqpy.client.push.worker_pool import TaskWorkerPool, ThreadWorkerPool, Worker, WorkerPool

WAIT_S = 30.0


class WordQueue:
    """Words that wait, as a process queue has messages."""

    def __init__(self, pool: WorkerPool["WordQueue"]) -> None:
        self.pool = pool
        self.words: deque[str] = deque()

    def put(self, *words: str) -> None:
        self.words.extend(words)
        self.pool.put(self)


def doing(
    handle: Callable[[str], Any],
) -> Callable[[Worker[WordQueue], WordQueue], Coroutine[Any, Any, None]]:
    """The work of calling `handle` with each word of a queue, side by side where there is more than one."""

    async def work(worker: Worker[WordQueue], queue: WordQueue) -> None:
        while worker.left > 0 and queue.words:
            worker.left -= 1
            word = queue.words.popleft()
            if queue.words:
                queue.pool.put_back(queue)
            worker.began_at = time.monotonic()
            handle(word)

    return work


async def has_come(event: threading.Event) -> bool:
    return await asyncio.to_thread(event.wait, WAIT_S)


@pytest.mark.parametrize("is_put_at_once", [True, False], ids=["at once", "one by one"])
async def test_blocking_handlers_run_concurrently_on_all_threads(is_put_at_once: bool) -> None:
    pool: WorkerPool[WordQueue] = ThreadWorkerPool(8, "pool")
    all_at_once = threading.Barrier(8)
    left = threading.Semaphore(0)

    def handle(word: str) -> None:
        all_at_once.wait(WAIT_S)
        left.release()

    pool.start(doing(handle), pytest.fail)
    queue = WordQueue(pool)
    if is_put_at_once:
        queue.put(*"0123456789abcdef")
    else:
        for word in "0123456789abcdef":
            queue.put(word)
            await asyncio.sleep(0)
    for _ in range(16):
        assert await asyncio.to_thread(left.acquire, True, WAIT_S)
    pool.dismiss()


async def test_stuck_handler_delays_no_other_message() -> None:
    pool: WorkerPool[WordQueue] = ThreadWorkerPool(2, "pool")
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

    pool.start(doing(handle), pytest.fail)
    words = [str(number) for number in range(500)]
    WordQueue(pool).put("stuck", *words)
    assert await has_come(others)
    assert seen == words
    may_return.set()
    assert await has_come(returned)
    pool.dismiss()


async def test_slow_handlers_get_all_threads_even_if_none_of_them_looks_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_pool, "STUCK_S", 10 * WAIT_S)
    pool: WorkerPool[WordQueue] = ThreadWorkerPool(4, "pool")
    all_active = threading.Event()
    threads: set[threading.Thread] = set()

    def handle(word: str) -> None:
        time.sleep(2 * worker_pool.BRISK_S)  # a slow handler
        threads.add(threading.current_thread())
        if len(threads) == 4:
            all_active.set()

    pool.start(doing(handle), pytest.fail)
    WordQueue(pool).put(*["slow"] * 100_000)
    assert await has_come(all_active)
    pool.dismiss()


async def test_message_arriving_while_all_workers_are_parked_is_taken() -> None:
    pool: WorkerPool[WordQueue] = ThreadWorkerPool(3, "pool")
    taken = threading.Event()
    pool.start(doing(lambda _: taken.set()), pytest.fail)
    queue = WordQueue(pool)
    for _ in range(200):
        queue.put("word")
        assert await has_come(taken)
        taken.clear()
    pool.dismiss()


async def test_every_queue_gets_its_turn() -> None:
    pool: WorkerPool[WordQueue] = ThreadWorkerPool(1, "pool")
    endless, other = WordQueue(pool), WordQueue(pool)
    seen = threading.Event()

    def handle(word: str) -> None:
        if word == "again":
            endless.words.append("again")
        else:
            seen.set()

    pool.start(doing(handle), pytest.fail)
    endless.put("again", "again")
    other.put("word")
    assert await has_come(seen)
    pool.dismiss()


async def test_coroutines_run_concurrently_in_all_tasks() -> None:
    pool: WorkerPool[WordQueue] = TaskWorkerPool(5)
    inside, may_return, over = 0, asyncio.Event(), asyncio.Event()

    async def work(worker: Worker[WordQueue], queue: WordQueue) -> None:
        nonlocal inside
        while queue.words:
            queue.words.popleft()
            if queue.words:
                pool.put_back(queue)
            inside += 1
            if inside == 5:
                may_return.set()
            if inside == 20:
                over.set()
            await may_return.wait()

    pool.start(work, pytest.fail)
    await asyncio.sleep(0)
    WordQueue(pool).put(*["word"] * 20)
    await asyncio.wait_for(over.wait(), WAIT_S)
    pool.dismiss()
