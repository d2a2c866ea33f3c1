"""Outbox helpers: a message is sent exactly if the database commits, also if the process dies in between."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rmqpy
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

#: Ends the process after the half message: before the commit of the database, or after it.
DYING = """
from rmqpy.client.producer.transactions.transaction import Transaction
if sys.argv[1] == "after":
    Transaction._exit = lambda self, error: os._exit(9)
    buy("died-after")
else:
    original = Transaction._enter
    async def enter(self):
        await original(self)
        os._exit(9)
    Transaction._enter = enter
    buy("died-before")
"""
LIVING = """
buy("plain")
try:
    buy("failed", fail=True)
except KeyError:
    pass
sys.stdin.read()
producer.close()
"""


@pytest.fixture
def server() -> Iterator[Standalone]:
    with broker(**SETTINGS) as server:
        yield server


@pytest.mark.parametrize("framework", ["sqlalchemy", "django"])
def test_messages_follow_the_database_over_deaths(server: Standalone, tmp_path: Path, framework: str) -> None:
    pytest.importorskip(framework)
    code = (SQLALCHEMY if framework == "sqlalchemy" else DJANGO).replace(
        "LONGEST", repr_of(timedelta(seconds=3))
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TESTS.parent / 'python'}:{os.environ.get('PYTHONPATH', '')}",
        "NAMESRV_ADDR": server.namesrv,
        "FOLDER": str(tmp_path),
    }
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic("orders", exist_ok=True)
        for when in ("after", "before"):
            dying = subprocess.run([sys.executable, "-c", code + DYING, when], env=environment, timeout=60)
            assert dying.returncode == 9
        assert list(admin.messages_between("orders")) == []
        living = subprocess.Popen(
            [sys.executable, "-c", code + LIVING], env=environment, stdin=subprocess.PIPE
        )
        try:
            sent = ["died-after", "plain"]
            until(lambda: sorted(m.text() for m in admin.messages_between("orders")) == sent, seconds=30)
            until(lambda: not admin.half_messages()[0], seconds=30)
            time.sleep(0.5)  # nothing more comes
            assert sorted(m.text() for m in admin.messages_between("orders")) == sent
        finally:
            living.communicate(timeout=30)
    assert living.returncode == 0


def repr_of(longest: timedelta) -> str:
    return f"__import__('datetime').timedelta(seconds={longest.total_seconds()})"
