"""Transactions: a shop books an order in its database, and notifies billing only if it is booked.

    python examples/transactions.py

The message is first sent as a half message, then the order is booked, then the half is committed. The message id is
booked with the order: a process that is asked about a half, this one or the next one after a crash, looks it up.
"""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import rmqpy
from rmqpy import testing

ORDERS = {"A-1": 30, "A-2": -5, "A-3": 12, "A-4": 8}


class Shop:
    """A database of orders, and their messages."""

    def __init__(self, database: Path, namesrv: str) -> None:
        self.database = database
        with closing(sqlite3.connect(database)) as connection:
            connection.execute(
                "CREATE TABLE orders (number TEXT PRIMARY KEY, amount INT CHECK (amount > 0), message_id TEXT)"
            )
        self.producer = rmqpy.Producer(namesrv, group="shop", transaction_checker=self.is_booked)

    def order(self, number: str, amount: int) -> None:
        with (
            self.producer.transaction("orders", f"{number}: {amount} EUR", keys=number) as transaction,
            closing(sqlite3.connect(self.database)) as connection,
            connection,
        ):
            row = (number, amount, transaction.half.message_id)
            connection.execute("INSERT INTO orders VALUES (?, ?, ?)", row)

    def is_booked(self, message: rmqpy.ReceivedMessage) -> bool:
        """Answer a broker's check, on another thread and therefore with a separate connection."""
        with closing(sqlite3.connect(self.database)) as connection:
            query = "SELECT 1 FROM orders WHERE message_id = ?"
            return connection.execute(query, [message.message_id]).fetchone() is not None


def main() -> None:
    billed: list[str] = []
    done = threading.Event()
    with TemporaryDirectory() as folder, testing.broker() as server:
        shop = Shop(Path(folder) / "orders.db", server.namesrv)
        billing = rmqpy.PushConsumer("billing", server.namesrv, start_from="earliest", workers=1)

        @billing.on("orders")
        def bill(message: rmqpy.ReceivedMessage) -> None:
            billed.append(message.text())
            if len(billed) == sum(amount > 0 for amount in ORDERS.values()):
                done.set()

        with shop.producer:
            for number, amount in ORDERS.items():
                try:
                    shop.order(number, amount)
                except sqlite3.IntegrityError as error:
                    print(f"{number} is not booked, and billing hears nothing of it: {error}")
            with billing:
                assert done.wait(60)
        print(f"billed: {', '.join(sorted(billed))}")


if __name__ == "__main__":
    main()
