"""Open transactions in a folder passed from Apache's broker to ours and back: whichever broker gets the decision, a
committed message exists once, and a rolled-back one never.

Apache's broker stores a half again with each check, so ours finds halves of both kinds. A broker is
stopped when it has marked its ended transactions; Apache's checks again those that it had not marked.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqpy
from rmqpy import TransactionState
from waiting import until

from . import servers, wire
from .folders import SMALL_FILES, Folder

TOPIC, MARKS = "transacted", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COUNT = 12
WAIT_S = 120.0
SETTINGS = SMALL_FILES | servers.APACHE_CHECKS | {"transactionCheckMax": 1_000}


class Shop:
    """Producers of one group, whose messages name their deciding broker, and the decision."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        #: Transactions, by deciding broker.
        self.begun: dict[str, list[bytes]] = {"at once": []}

    def serve(self, name: str, *, later: tuple[str, ...] = ()) -> None:
        """Under the broker called `name`: begin transactions that end immediately, and others that wait for this
        broker or `later` ones; return when everything due by now has ended."""
        until(lambda: wire.has_route(self.folder.namesrv, TOPIC), WAIT_S)

        def check(message: rmqpy.ReceivedMessage) -> TransactionState:
            # Ended transactions are not checked again; if they were, an application would repeat its decision.
            known = [*self.begun["at once"], *self.begun.get(name, ())]
            return decision(message.body) if message.body in known else TransactionState.UNKNOWN

        with rmqpy.Producer(
            self.folder.namesrv, group="shop", transaction_checker=check, send_timeout=30.0
        ) as producer:
            for number in range(COUNT):
                word = "commit" if number % 2 else "rollback"
                self.begin(producer, "at once", f"{name} {number}/{word}")
                for other in (name, *later):
                    self.begin(producer, other, f"{name} {number} for {other}/{word}")
            ended = [*self.begun["at once"], *self.begun[name]]
            until(lambda: self.have_ended(ended), pause=0.1)
        # Nothing more ends under other brokers.
        self.begun["at once"] += self.begun.pop(name)

    def begin(self, producer: rmqpy.Producer, decider: str, body: str) -> None:
        with producer.transaction(TOPIC, body) as transaction:
            if decider != "at once":
                transaction.leave_unknown()
            elif decision(transaction.message.body) is TransactionState.ROLLBACK:
                transaction.rollback()
        self.begun.setdefault(decider, []).append(transaction.message.body)

    def have_ended(self, bodies: list[bytes]) -> bool:
        """Return whether committed messages are visible, and each end is marked."""
        marked = sum(len(record.body.strip(b",").split(b",")) for record in self.folder.queue(MARKS, 0))
        return marked >= len(bodies) and self.seen().keys() >= committed(bodies).keys()

    def seen(self) -> Counter[bytes]:
        return Counter(record.body for record in self.folder.queue(TOPIC, 0))


def decision(body: bytes) -> TransactionState:
    return TransactionState[body.decode().rpartition("/")[2].upper()]


def committed(bodies: list[bytes]) -> Counter[bytes]:
    return Counter(body for body in bodies if decision(body) is TransactionState.COMMIT)


@pytest.mark.timeout(400)
def test_open_transactions_go_from_apache_to_rmqpy_and_back_and_each_ends_once(
    originals: Callable[[str], Path], namesrv: str, tmp_path: Path
) -> None:
    folder = Folder.make(tmp_path / "broker", namesrv, originals("apache"), **SETTINGS)
    shop = Shop(folder)
    with folder.served_by("apache"):
        wire.create_topic(namesrv, folder.broker, TOPIC, 1)
        shop.serve("first", later=("second", "third"))
    with folder.served_by("rmqpy"):
        shop.serve("second", later=("third",))
    folder.verify()
    with folder.served_by("apache") as broker:
        shop.serve("third")
        assert shop.seen() == committed(shop.begun["at once"])
        broker.kill()
