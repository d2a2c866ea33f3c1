"""Order by key: books the movements of each account one after the other, and accounts concurrently.

    python examples/ordered_by_key.py

Messages with one sharding key go to one queue, and an ordered consumer handles a queue in order, at one member at a
time: every account gets its deposit before a withdrawal, and two members share the work.
"""

import random
import threading
import time
from collections import Counter

import rmqpy
from rmqpy import testing

ACCOUNTS = [f"account-{number}" for number in range(12)]
ROUNDS = 20


def main() -> None:
    balance: Counter[str] = Counter()
    booked_by: Counter[str] = Counter()
    all_booked = threading.Event()
    # Guards data shared by members: accounts of different queues are booked concurrently.
    lock = threading.Lock()

    def member(name: str, namesrv: str) -> rmqpy.PushConsumer:
        consumer = rmqpy.PushConsumer("ledger", namesrv, ordered=True, start_from="earliest")

        @consumer.on("movements")
        def book(message: rmqpy.ReceivedMessage) -> None:
            account = message.sharding_key or ""
            # No lock: no other worker handles this account now.
            balance[account] += int(message.text())
            assert balance[account] >= 0, f"{account} was drawn from before it was paid into"
            with lock:
                booked_by[name] += 1
                if booked_by.total() == 2 * ROUNDS * len(ACCOUNTS):
                    all_booked.set()

        return consumer

    with testing.broker() as server, rmqpy.Producer(server.namesrv) as bank:

        def move_money(rounds: int) -> None:
            for _ in range(rounds):
                for account in ACCOUNTS:
                    amount = random.randint(1, 100)
                    bank.send("movements", str(amount), sharding_key=account)
                    bank.send("movements", str(-amount), sharding_key=account)

        move_money(1)
        with member("one", server.namesrv) as one, member("two", server.namesrv) as two:
            while not (one.queues() and two.queues()):
                time.sleep(0.1)
            move_money(ROUNDS - 1)
            assert all_booked.wait(60)
    for name, count in sorted(booked_by.items()):
        print(f"{name} booked {count}")
    print(f"booked {booked_by.total()} movements, every balance is {set(balance.values())}")


if __name__ == "__main__":
    main()
