"""Senders through changes of the master, which record what was acknowledged, and when."""

from __future__ import annotations

import itertools
import threading
import time

import rmqpy
from rmqpy.errors import RocketMQError

SEND_SECONDS = 3.0
PAUSE_SECONDS = 0.005
#: The pause after a failed send.
FAILED_SECONDS = 0.02


class Senders:
    """Threads that send through one producer, one message at a time each."""

    def __init__(self, namesrv: str, topic: str, count: int) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[str] = []
        self._times: list[float] = []
        self._topic = topic
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._producer = rmqpy.Producer(namesrv)
        self._threads = [threading.Thread(target=self._run, args=(index,)) for index in range(count)]

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self._producer.close()

    @property
    def count(self) -> int:
        with self._lock:
            return len(self.acknowledged)

    def wait_for(self, more: int, seconds: float) -> None:
        """Wait until `more` messages were acknowledged from now on."""
        wanted, deadline = self.count + more, time.monotonic() + seconds
        while self.count < wanted:
            if time.monotonic() > deadline:
                raise AssertionError(f"no send is accepted: {self.failures[-3:]}")
            time.sleep(0.05)

    def silence(self, since: float, until: float) -> float:
        """The longest time without an accepted send that began before `until` and ended after `since`."""
        with self._lock:
            times = [at for at in self._times if at <= until]
        before = max((at for at in times if at <= since), default=since)
        after = [before, *(at for at in times if at > since), until]
        return max(later - earlier for earlier, later in itertools.pairwise(after))

    def _run(self, index: int) -> None:
        number = 0
        while not self._ending.is_set():
            body = f"{index}/{number}/{time.monotonic_ns()}".encode()
            number += 1
            try:
                result = self._producer.send(self._topic, body, timeout=SEND_SECONDS)
            except RocketMQError as error:
                with self._lock:
                    self.failures.append(f"{time.monotonic():.3f} {type(error).__name__}: {error}"[:300])
                self._ending.wait(FAILED_SECONDS)
                continue
            if result.status.name != "SEND_OK":
                continue
            with self._lock:
                self.acknowledged.append(body)
                self._times.append(time.monotonic())
            self._ending.wait(PAUSE_SECONDS)
