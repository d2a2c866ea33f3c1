"""Serving until a signal: threads, failures at the start."""

import asyncio
import gc
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from rmqpy.server import Standalone, Thread, default_data_dir


class Recorder:
    """A server that records its calls."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.notes: list[str] = []
        self.failure = failure

    async def start(self) -> None:
        self.notes.append(f"start on {threading.current_thread().name}")
        if self.failure is not None:
            raise self.failure

    async def stop(self) -> None:
        self.notes.append("stop")


def test_a_thread_runs_a_server_and_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    server = Recorder()
    thread = Thread(server)
    thread.start()
    assert thread.call(asyncio.sleep(0, "done")) == "done"
    thread.stop()
    assert server.notes == ["start on rmqpy-server", "stop"]
    assert set(threading.enumerate()) <= before


def test_a_failed_start_is_raised_and_ends_the_thread() -> None:
    before = set(threading.enumerate())
    server = Recorder(OSError("port taken"))
    with pytest.raises(OSError, match="port taken"):
        Thread(server).start()
    assert server.notes[-1] == "stop"
    assert set(threading.enumerate()) <= before


def serving(stop: str) -> subprocess.Popen[str]:
    """A process that serves something whose `stop` runs the given line; it prints when it is ready."""
    program = f"""
        import asyncio, gc, sys
        from rmqpy.server import serve

        class Something:
            async def start(self):
                pass
            async def stop(self):
                {stop}

        asyncio.run(serve(Something(), lambda: print("ready", flush=True)))
        print("left", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_in_order(number: signal.Signals) -> None:
    with serving(stop='print("stopping", flush=True)') as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "stopping\nleft\n", "")


def test_second_signal_ends_the_process_immediately() -> None:
    with serving(stop='print("stopping", flush=True); await asyncio.Event().wait()') as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")


def test_serving_process_bounds_pauses_of_its_event_loop() -> None:
    with serving(stop="print(gc.get_freeze_count() > 5_000, sys.getswitchinterval())") as process:
        process.terminate()
        out, err = process.communicate(timeout=30)
    assert (out, err) == ("True 0.0005\nleft\n", ""), "the collector's part, and that of other threads"


def test_embedded_server_leaves_collector_and_threads_unchanged(tmp_path: Path) -> None:
    before = gc.get_freeze_count(), sys.getswitchinterval()
    with Standalone(tmp_path, namesrv_port=0, broker_port=0):
        assert (gc.get_freeze_count(), sys.getswitchinterval()) == before


def test_data_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    monkeypatch.delenv("RMQPY_DATA_DIR", raising=False)
    assert str(default_data_dir()) == "/somewhere/rmqpy"
    monkeypatch.setenv("RMQPY_DATA_DIR", "/elsewhere")
    assert str(default_data_dir()) == "/elsewhere"


def test_systemd_is_notified_of_ready_and_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(address))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(address))
        supervisor.settimeout(60)
        with serving("pass") as process:
            assert supervisor.recv(64) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert supervisor.recv(64) == b"STOPPING=1"
            process.communicate(timeout=60)
    assert process.returncode == 0
