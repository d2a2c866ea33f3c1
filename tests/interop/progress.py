"""Progress of a group, watched from outside: what brokers have as committed, and every step back; and the queues whose
owner stands still.

Owns the thread that asks. A step back is explained by a broker that was silent, for commits that were on their way are
applied when it goes on; and by a hand-over to or from Java's client, which neither waits before it begins nor asks
before it commits. A queue that the members agree to be a paused one's waits for it, as long as brokers believe in that.
"""

import threading
import time
from collections.abc import Callable, Sequence

import rmqpy
from rmqpy import errors
from rmqpy.client.allocation import averagely
from rmqpy.message import MessageQueue

from .ledger import Ledger, Queue

EVERY_S = 0.2
#: A silent broker explains what happens until so long after it.
SILENCE_S = 20.0
#: A hand-over explains what happens until so long after it: Java's client commits what it took at once after 10 s at
#: first, and then every five.
HAND_OVER_S = 30.0


class Progress:
    """The committed offsets of one group on one topic."""

    def __init__(
        self, namesrv: str, group: str, topic: str, ledger: Ledger, paused: Callable[[], int | None]
    ) -> None:
        """`paused`: the process of a member that stands still now."""
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
        #: Times every queue was looked at.
        self.rounds = 0
        self._thread.start()

    def silent(self, broker: str) -> None:
        """This broker is silent, or was until now."""
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
        """Nobody else may consume what is the share of a process that stands still."""
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
