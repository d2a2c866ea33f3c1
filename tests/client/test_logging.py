"""`rmqpy.logging.Handler`: records become messages, and logging never waits."""

import logging
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import rmqpy
from rmqpy.server import Standalone

from .fakes import SILENCE, Brokers, NameServer
from .live import until


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


def test_logging_waits_for_no_server_and_counts_what_is_lost(
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


def test_a_program_that_ends_has_sent_what_it_logged(server: Standalone, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, topic, server.namesrv], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    messages = read(server, topic, 101)
    assert {message.text() for message in messages if message.tag == "app"} == {
        f"last words {number}" for number in range(100)
    }
