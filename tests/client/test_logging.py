"""`rmqpy.logging.Handler`: records become messages, and logging never waits."""

import logging
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import rmqpy
from rmqpy.server import Standalone
from waiting import until

from .fakes import SILENCE, Brokers, NameServer


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("shop.orders")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    for handler in list(logger.handlers):
        handler.close()
        logger.removeHandler(handler)


def read(server: Standalone, topic: str, count: int) -> list[rmqpy.ReceivedMessage]:
    found: list[rmqpy.ReceivedMessage] = []
    with rmqpy.PullConsumer("log-reader", server.namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues(topic))
        until(lambda: found.extend(consumer.poll(0.5)) or len(found) >= count)
    return found


def test_records_become_messages_with_level_and_logger(
    server: Standalone, topic: str, logger: logging.Logger
) -> None:
    handler = rmqpy.logging.Handler(topic, server.namesrv, level="INFO")
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.debug("not this one")
    logger.info("paid %d", 7)
    logger.error("half a pair: \ud800")
    handler.flush()
    # Its own records would have no end.
    handler.handle(logging.makeLogRecord({"name": "rmqpy.client", "msg": "never"}))
    handler.close()
    handler.handle(logging.makeLogRecord({"name": "shop", "msg": "too late"}))
    messages = {message.text(): message for message in read(server, topic, 3)}
    assert set(messages) == {"first", "INFO paid 7", "ERROR half a pair: \\ud800"}
    paid = messages["INFO paid 7"]
    assert (paid.tag, paid.properties["logger"]) == ("INFO", "shop.orders")
    assert handler.dropped == 0


def test_logging_does_not_block_and_counts_lost_records(
    name_server: NameServer, brokers: Brokers, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    for code in name_server.handlers:
        name_server.handlers[code] = lambda ask: SILENCE
    config = rmqpy.ClientConfig(namesrv=name_server.address, request_timeout=3)
    handler = rmqpy.logging.Handler("orders", config)
    logger.addHandler(handler)
    began = time.monotonic()
    for number in range(3):
        logger.warning("message %d", number)
    assert time.monotonic() - began < 3, "as long as one of its questions"
    until(lambda: handler.dropped == 3)
    # Reported once, as logging reports the errors of its handlers.
    assert capsys.readouterr().err.count("--- Logging error ---") == 1
    with pytest.raises(ValueError, match="not a valid name"):
        rmqpy.logging.Handler("no topic")


PROGRAM = """
import logging, logging.config, sys
logging.config.dictConfig({
    "version": 1,
    "handlers": {
        "to": {"class": "rmqpy.logging.Handler", "topic": sys.argv[1], "namesrv": sys.argv[2], "tag": "app"},
    },
    "root": {"level": "INFO", "handlers": ["to"]},
})
for number in range(100):
    logging.info("last words %d", number)
"""


def test_program_sends_its_log_records_before_exit(server: Standalone, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, topic, server.namesrv], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    messages = read(server, topic, 101)
    assert {message.text() for message in messages if message.tag == "app"} == {
        f"last words {number}" for number in range(100)
    }


TWICE = """
import logging, logging.config, sys, threading, time
setup = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"to": {"class": "rmqpy.logging.Handler", "topic": sys.argv[1], "namesrv": sys.argv[2]}},
    "root": {"level": "INFO", "handlers": ["to"]},
}
longest = 0.0

def log_on():
    global longest
    while not stop.wait(0.001):
        began = time.monotonic()
        # A logger without a cached level takes logging's lock.
        logging.getLogger(f"other.{began}").debug("busy")
        longest = max(longest, time.monotonic() - began)

stop, other = threading.Event(), threading.Thread(target=log_on)
other.start()
logging.config.dictConfig(setup)
for number in range(100):
    logging.info("first %d", number)
began = time.monotonic()
logging.config.dictConfig(setup)
took = time.monotonic() - began
for number in range(100):
    logging.info("second %d", number)
stop.set()
other.join()
print(took < 1, longest < 1)
"""


def test_logging_can_be_reconfigured_without_pause_or_loss(server: Standalone, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TWICE, topic, server.namesrv],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")
    messages = read(server, topic, 201)
    assert {message.text() for message in messages} - {"first"} == {
        f"{which} {number}" for which in ("first", "second") for number in range(100)
    }


INTERRUPTED = """
import gc, logging, signal, sys
import rmqpy
handler = rmqpy.logging.Handler(sys.argv[1], sys.argv[2])
log = logging.getLogger("shop")
log.addHandler(handler)
log.setLevel("INFO")

class Cycle:
    def __del__(self):
        log.info("from a finalizer")

signal.signal(signal.SIGALRM, lambda *_: log.info("from a signal"))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
gc.set_threshold(5)
for number in range(2000):
    cycle = Cycle()
    cycle.itself = cycle
    log.info("in order")
signal.setitimer(signal.ITIMER_REAL, 0)
gc.set_threshold(700)
handler.flush()
handler.close()
print("done", handler.dropped)
"""


def test_a_signal_handler_and_a_finalizer_may_log_in_the_middle_of_a_record(
    server: Standalone, topic: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, topic, server.namesrv],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "done 0\n", "")
