"""Progress of a group, watched from outside: committed offsets, every step back, and the queues of paused owners.

Owns the polling thread. A step back is explained by a silent broker, which applies the commits in flight when it
resumes, and by a hand-over to or from Java's client, which neither waits before it begins nor checks before it
commits. A queue that the members assign to a paused member waits for it, as long as brokers count it as a member.
"""

import threading
import time
from collections.abc import Callable, Sequence

import rmqpy
from campaigns.interop.ledger import Ledger, Queue
from rmqpy import errors
from rmqpy.client.group.allocation import averagely
from rmqpy.message import MessageQueue

EVERY_S = 0.2
#: A silent broker explains steps back until so long after it.
SILENCE_S = 20.0
#: A hand-over explains steps back until so long after it: Java's client commits first after 10 s, and then every
#: five.
HAND_OVER_S = 30.0


class Progress:
    """The committed offsets of one group on one topic."""

    def __init__(
        self, namesrv: str, group: str, topic: str, ledger: Ledger, paused: Callable[[], int | None]
    ) -> None:
        """`paused` returns the process of a paused member."""
        self._config = rmqpy.ClientConfig(namesrv=namesrv, request_timeout=1.0)
        self._group = group
        self._topic = topic
        self._ledger = ledger
        self._paused = paused
        self._reached: dict[Queue, int] = {}
        self._silent: dict[str, float] = {}
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        #: Steps back, by their explanation.
        self.explained: list[str] = []
        self.unexplained: list[str] = []
        #: The number of checks of every queue.
        self.rounds = 0
        self._thread.start()

    def silent(self, broker: str) -> None:
        """Record that this broker is silent, or was until now."""
        self._silent[broker] = time.monotonic()

    def close(self) -> None:
        self._has_ended.set()
        self._thread.join()

    def _watch(self) -> None:
        with (
            rmqpy.PullConsumer(self._group, self._config, auto_commit=False) as probe,
            rmqpy.Admin(self._config) as admin,
        ):
            queues = sorted(probe.queues(self._topic))
            while not self._has_ended.wait(EVERY_S):
                away: set[str] = set()
                for queue in queues:
                    if queue.broker in away:
                        continue
                    try:
                        committed = probe.committed(queue)
                    except (errors.RequestTimeout, errors.ConnectError):
                        away.add(queue.broker)
                        self.silent(queue.broker)
                        continue
                    if committed is not None:
                        self._note((queue.broker, queue.queue_id), committed)
                self.rounds += 1
                if (paused := self._paused()) is not None:
                    self._excuse(admin, queues, paused)

    def _excuse(self, admin: rmqpy.Admin, queues: Sequence[MessageQueue], paused: int) -> None:
        """Excuse the queues in the share of a paused process, which no other may consume."""
        try:
            members = sorted(member.client_id for member in admin.members(self._group))
        except errors.RocketMQError:
            return
        for me in members:
            # Ours and Java's are named `address@process#...`.
            if me.partition("@")[2].partition("#")[0] == str(paused):
                self._ledger.wait(*((own.broker, own.queue_id) for own in averagely(me, queues, members)))

    def _note(self, queue: Queue, committed: int) -> None:
        before = self._reached.get(queue, 0)
        self._reached[queue] = committed
        if committed >= before:
            return
        members = self._ledger.recent(queue, HAND_OVER_S)
        step = f"queue {queue} went back from {before} to {committed}, consumed by {sorted(members)}"
        silent_at = self._silent.get(queue[0])
        if silent_at is not None and time.monotonic() < silent_at + SILENCE_S:
            self.explained.append(f"silence: {step}")
        elif len(members) > 1 and any(member.startswith("java") for member in members):
            self.explained.append(f"hand-over with Java: {step}")
        else:
            self.unexplained.append(step)
