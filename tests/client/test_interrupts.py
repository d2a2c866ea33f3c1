"""Ctrl-C and SIGTERM: while a client starts, runs or closes, in a program of its own."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from rmqpy.client.group.loop_thread import LoopThread
from rmqpy.protocol.codes import RequestCode
from rmqpy.server import Standalone
from waiting import until
from wire import Frame

from .fakes import SILENCE, Answer, Brokers, Handler, NameServer
from .live import WAIT_S, committed, end, members, send

#: Interrupts the main thread as soon as it is in the function `waiting` of the package, and prints which of its threads
#: are left.
INTERRUPTED = """
import os, signal, sys, threading, time, traceback
import rmqpy
namesrv, topic = sys.argv[1:]
consumer = {make}

def is_waiting():
    frames = traceback.walk_stack(sys._current_frames()[threading.main_thread().ident])
    return any(
        frame.f_code.co_name == "{waiting}" and frame.f_globals["__name__"].startswith("rmqpy.")
        for frame, _ in frames
    )

def interrupt():
    while not is_waiting():
        time.sleep(0.01)  # between two looks
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    {statement}
    print("not interrupted", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
deadline = time.monotonic() + 60
def left():
    return [one.name for one in threading.enumerate() if one.name.startswith("rmqpy-")]
while left() and time.monotonic() < deadline:
    time.sleep(0.01)  # threads end a moment later
print("left:", left())
"""


def rest_of(program: subprocess.Popen[str]) -> tuple[str, str]:
    """What it prints until its end. `communicate` would lose what lies in the buffers of `readline`."""
    assert program.stdout is not None
    assert program.stderr is not None
    printed = program.stdout.read(), program.stderr.read()
    program.wait(WAIT_S)
    return printed


def interrupted(namesrv: str, make: str, statement: str, waiting: str) -> subprocess.Popen[str]:
    """The program, when it has been interrupted."""
    text = INTERRUPTED.format(make=make, statement=statement, waiting=waiting)
    program = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", text, namesrv, "interrupted"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "interrupted\n"
    return program


async def _endless(ready: Callable[[], None]) -> None:
    ready()
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("is_begun", [True, False], ids=["after it has begun", "before it could begin"])
def test_an_interrupt_while_a_thread_starts_ends_it(monkeypatch: pytest.MonkeyPatch, is_begun: bool) -> None:
    """A signal can arrive while `Thread.start` waits for the new thread."""
    start = threading.Thread.start

    def begin(thread: threading.Thread) -> None:
        if is_begun:
            start(thread)
        raise KeyboardInterrupt

    loop_thread = LoopThread("rmqpy-begun", _endless)
    monkeypatch.setattr(threading.Thread, "start", begin)
    with pytest.raises(KeyboardInterrupt):
        loop_thread.start()
    loop_thread.ended.result(WAIT_S)
    until(lambda: "rmqpy-begun" not in [thread.name for thread in threading.enumerate()])


@pytest.mark.parametrize(
    ("make", "statement", "waiting"),
    [
        (
            "rmqpy.PushConsumer(topic, config); consumer.on('orders', handler=print)",
            "consumer.start()",
            "start",
        ),
        ("rmqpy.PullConsumer(topic, config)", "consumer.subscribe('orders')", "subscribe"),
    ],
    ids=["push", "pull"],
)
def test_an_interrupted_start_leaves_no_member(
    name_server: NameServer, brokers: Brokers, make: str, statement: str, waiting: str
) -> None:
    for broker in brokers:
        broker.serve_groups()
    may_answer = threading.Event()

    def late(answer: Handler) -> Handler:
        def handle(ask: Frame) -> Answer:
            may_answer.wait(WAIT_S)
            return answer(ask)

        return handle

    for code, answer in name_server.handlers.items():
        name_server.handlers[code] = late(answer)
    make = make.replace("config", "rmqpy.ClientConfig(namesrv=namesrv, request_timeout=3)")
    program = interrupted(name_server.address, make, statement, waiting)
    may_answer.set()
    out, err = rest_of(program)
    assert out == "left: []\n", err


@pytest.mark.parametrize(
    ("make", "statement", "waiting"),
    [
        ("rmqpy.PullConsumer('group', namesrv); consumer.subscribe('orders')", "consumer.close()", "until"),
        (
            "rmqpy.Producer(namesrv, send_timeout=30); consumer.submit('orders', b'x')",
            "consumer.close(30)",
            "_drained",
        ),
    ],
    ids=["pull", "producer"],
)
def test_an_interrupted_close_leaves_nothing(
    name_server: NameServer, brokers: Brokers, make: str, statement: str, waiting: str
) -> None:
    for broker in brokers:
        broker.serve_groups()
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.UNREGISTER_CLIENT):
            broker.handlers[code] = lambda ask: SILENCE
    program = interrupted(name_server.address, make, statement, waiting)
    out, err = rest_of(program)
    assert out == "left: []\n", err


RUNNING = """
import asyncio, sys, time
import rmqpy
namesrv, topic, seconds = sys.argv[1:]

async def later(message):
    print("begun", message.text(), flush=True)
    await asyncio.sleep(float(seconds))  # work
    print("done", message.text(), flush=True)

def now(message):
    print("begun", message.text(), flush=True)
    time.sleep(float(seconds))  # work
    print("done", message.text(), flush=True)

{run}
print("ended", flush=True)
"""

LOOP = """
async def main():
    consumer = rmqpy.AsyncPushConsumer(topic, namesrv, start_from="earliest", workers=1)
    consumer.on(topic, "t", later)
    await consumer.run()
asyncio.run(main())
"""

THREADS = """
consumer = rmqpy.PushConsumer(topic, namesrv, start_from="earliest", workers=1)
consumer.on(topic, "t", now)
consumer.run()
"""


def started(server: Standalone, topic: str, run: str, seconds: float) -> subprocess.Popen[str]:
    program = subprocess.Popen(
        [sys.executable, "-c", RUNNING.format(run=run), server.namesrv, topic, str(seconds)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "begun 1\n"
    return program


@pytest.mark.parametrize("run", [LOOP, THREADS], ids=["loop", "threads"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_handler_finish_and_commits(
    server: Standalone, topic: str, run: str, number: signal.Signals
) -> None:
    send(server, topic, ["1"], sharding_key="one queue")
    program = started(server, topic, run, 0.3)
    program.send_signal(number)
    out, err = rest_of(program)
    assert (program.returncode, out.splitlines(), err) == (0, ["done 1", "ended"], "")
    assert committed(server, topic, topic) == end(server, topic)
    assert members(server, topic) == 0


@pytest.mark.parametrize("run", [LOOP, THREADS], ids=["loop", "threads"])
def test_second_signal_interrupts_a_stuck_handler(server: Standalone, topic: str, run: str) -> None:
    send(server, topic, ["1"], sharding_key="one queue")
    program = started(server, topic, run, 60)
    program.send_signal(signal.SIGINT)
    assert program.stderr is not None
    told = program.stderr.readline()
    assert "waits up to 30 s for 1 handler" in told
    assert topic in told
    began = time.monotonic()
    program.send_signal(signal.SIGINT)
    out, _ = rest_of(program)
    assert time.monotonic() - began < 20, "without the 30 s"
    assert (program.returncode, out.splitlines()) == (0, ["ended"])
    # What did not finish comes again.
    assert committed(server, topic, topic) < end(server, topic)
