"""Outbox helpers: a message is sent exactly if the database commits, also if the process dies in between."""

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy.contrib.outbox import together_async
from rmqpy.server import Standalone
from rmqpy.testing import broker
from waiting import until

TESTS = Path(__file__).resolve().parent.parent
#: Quick checks of undecided messages.
SETTINGS: dict[str, Any] = {"transactionTimeOut": 500, "transactionCheckInterval": 1000}

SQLALCHEMY = """
import os, sys
from sqlalchemy import String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
import rmqpy
from rmqpy.contrib.sqlalchemy import row_checker, transaction

class Base(DeclarativeBase):
    pass

class Purchase(Base):
    __tablename__ = "purchases"
    id: Mapped[str] = mapped_column(String, primary_key=True)

engine = create_engine(f"sqlite:///{os.environ['FOLDER']}/shop.db")
Base.metadata.create_all(engine)
checker = row_checker(sessionmaker(engine), Purchase.id, longest=LONGEST)
producer = rmqpy.Producer(group="shop", transaction_checker=checker)

def buy(key, fail=False):
    with Session(engine) as session, transaction(producer, session, "orders", key.encode(), keys=key):
        session.add(Purchase(id=key))
        if fail:
            raise KeyError(key)
"""

#: The producer's loop has a thread, so that checks are answered while the program waits.
SQLALCHEMY_ASYNCIO = """
import asyncio, os, sys, threading
from sqlalchemy import String
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
import rmqpy
from rmqpy.contrib.sqlalchemy import async_row_checker, async_transaction

class Base(DeclarativeBase):
    pass

class Purchase(Base):
    __tablename__ = "purchases"
    id: Mapped[str] = mapped_column(String, primary_key=True)

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()

def run(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

async def create():
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)

engine = create_async_engine(f"sqlite+aiosqlite:///{os.environ['FOLDER']}/shop.db")
run(create())
sessions = async_sessionmaker(engine)
checker = async_row_checker(sessions, Purchase.id, longest=LONGEST)
producer = rmqpy.AsyncProducer(group="shop", transaction_checker=checker)
run(producer.__aenter__())

async def buy_async(key, fail):
    async with sessions() as session, async_transaction(producer, session, "orders", key.encode(), keys=key):
        session.add(Purchase(id=key))
        if fail:
            raise KeyError(key)

def buy(key, fail=False):
    run(buy_async(key, fail))

def close():
    run(producer.close())
    run(engine.dispose())
"""

DJANGO = """
import os, sys
import django
from django.conf import settings
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{os.environ['FOLDER']}/shop.db"}
settings.configure(DATABASES={"default": database})
django.setup()
from django.db import connection, models
import rmqpy
from rmqpy.contrib.django.outbox import atomic, row_checker

class Purchase(models.Model):
    id = models.CharField(max_length=20, primary_key=True)
    class Meta:
        app_label = "shop"

if "shop_purchase" not in connection.introspection.table_names():
    with connection.schema_editor() as editor:
        editor.create_model(Purchase)
producer = rmqpy.Producer(group="shop", transaction_checker=row_checker(Purchase, longest=LONGEST))

def buy(key, fail=False):
    with atomic(producer, "orders", key.encode(), keys=key):
        Purchase.objects.create(id=key)
        if fail:
            raise KeyError(key)
"""

PROGRAMS = {"sqlalchemy": SQLALCHEMY, "aiosqlite": SQLALCHEMY_ASYNCIO, "django": DJANGO}

#: Ends the process after the half message: before the commit of the database, or after it.
DYING = """
from rmqpy.client.producer.transactions.transaction import _TransactionBase
if sys.argv[1] == "after":
    _TransactionBase._exit = lambda self, error: os._exit(9)
    buy("died-after")
else:
    original = _TransactionBase._enter
    async def enter(self):
        await original(self)
        os._exit(9)
    _TransactionBase._enter = enter
    buy("died-before")
"""
#: Sends only when told to, so that a producer which has not sent yet is asked about its predecessors' messages.
LIVING = """
sys.stdin.readline()
buy("plain")
try:
    buy("failed", fail=True)
except KeyError:
    pass
sys.stdin.read()
close() if "close" in globals() else producer.close()
"""


@pytest.fixture
def server() -> Iterator[Standalone]:
    with broker(**SETTINGS) as server:
        yield server


@pytest.mark.parametrize("library", PROGRAMS)
def test_messages_follow_the_database_over_deaths(server: Standalone, tmp_path: Path, library: str) -> None:
    pytest.importorskip(library)
    code = PROGRAMS[library].replace("LONGEST", repr_of(timedelta(seconds=3)))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TESTS.parent / 'python'}:{os.environ.get('PYTHONPATH', '')}",
        "NAMESRV_ADDR": server.namesrv,
        "FOLDER": str(tmp_path),
    }
    with rmqpy.Admin(server.namesrv) as admin:

        def sent() -> list[str]:
            return sorted(message.text() for message in admin.messages_between("orders"))

        admin.create_topic("orders", exist_ok=True)
        for when in ("after", "before"):
            dying = subprocess.run([sys.executable, "-c", code + DYING, when], env=environment, timeout=60)
            assert dying.returncode == 9
        assert sent() == []
        living = subprocess.Popen(
            [sys.executable, "-c", code + LIVING], env=environment, stdin=subprocess.PIPE
        )
        try:
            until(lambda: sent() == ["died-after"], seconds=30)
            assert living.stdin is not None
            living.stdin.write(b"\n")
            living.stdin.flush()
            until(lambda: sent() == ["died-after", "plain"], seconds=30)
            until(lambda: not admin.half_messages()[0], seconds=30)
            time.sleep(0.5)  # nothing more comes
            assert sent() == ["died-after", "plain"]
        finally:
            living.communicate(timeout=30)
    assert living.returncode == 0


async def test_a_cancelled_commit_of_the_database_leaves_the_message_to_the_checker(
    server: Standalone,
) -> None:
    is_committing = asyncio.Event()

    @asynccontextmanager
    async def work() -> AsyncIterator[None]:
        yield
        is_committing.set()
        await asyncio.Event().wait()

    async with rmqpy.AsyncProducer(server.namesrv, group="shop") as producer:
        transaction = producer.transaction("orders", b"...", keys="A-1")

        async def buy() -> None:
            async with together_async(transaction, work):
                pass

        buying = asyncio.create_task(buy())
        await asyncio.wait_for(is_committing.wait(), 30)
        buying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await buying
        assert transaction.state is rmqpy.TransactionState.UNKNOWN
        async with rmqpy.AsyncAdmin(server.namesrv) as admin:
            [half] = (await admin.half_messages())[0]
        assert half.message_id == transaction.half.message_id


async def test_an_unconfirmed_commit_after_that_of_the_database_is_only_logged(
    server: Standalone, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def work() -> AsyncIterator[None]:
        yield

    async def refuse(*_: object) -> None:
        raise rmqpy.errors.BrokerError("no reply")

    async with rmqpy.AsyncProducer(server.namesrv, group="shop") as producer:
        transaction = producer.transaction("orders", b"...", keys="A-1")
        monkeypatch.setattr(transaction, "_end", refuse)
        with caplog.at_level(logging.WARNING, "rmqpy.contrib.outbox"):
            async with together_async(transaction, work):
                pass
    assert "the broker will ask about a message to orders" in caplog.text


def repr_of(longest: timedelta) -> str:
    return f"__import__('datetime').timedelta(seconds={longest.total_seconds()})"
