"""Forks of a process with an open store: the child has no part in it, and does not lock it after the parent's end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqpy._native import Store
from rmqpy.config.broker import read
from rmqpy.errors import StoreError

#: The child tries every use of the store, prints its pid and stays; the parent waits to be killed.
PARENT = """
import os, signal, sys
from rmqpy import errors
from rmqpy._native import Store
from rmqpy.config.broker import read

store = Store(read({"storePathRootDir": sys.argv[1]}).config.store)
store.open()
child = os.fork()
if child == 0:
    refused = 0
    for use in (store.open, store.queues, store.statistics, lambda: store.delete_topic("orders")):
        try:
            use()
        except errors.ForkedError:
            refused += 1
    store.close()
    store.abandon()
    print("refused", refused, os.getpid(), flush=True)
    signal.pause()
signal.pause()
"""


def test_a_forked_child_does_not_keep_the_store_of_its_dead_parent_locked_and_cannot_use_it(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "store")]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    word, refused, child = parent.stdout.readline().split()
    try:
        assert (word, refused) == ("refused", "4")
        config = read({"storePathRootDir": str(tmp_path / "store")}).config.store
        with pytest.raises(StoreError, match="locked by another broker"):
            Store(config).open()
        parent.kill()
        parent.wait(timeout=30)
        assert Path(f"/proc/{child}").exists()
        store = Store(config)
        store.open()
        store.close()
    finally:
        parent.kill()
        os.kill(int(child), signal.SIGKILL)
