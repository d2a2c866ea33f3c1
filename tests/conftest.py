"""Fixtures and options of all tests: hypothesis, interrupts, servers, and the choice between quick and slow tests."""

import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from slow import is_slow, slow_tests

if TYPE_CHECKING:
    from rmqpy.server import Standalone

# A shell that runs the tests in the background has them ignore Ctrl-C, and every program they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines that run tests are shared: a slow example says nothing about the code. What a hang is, pytest-timeout knows.
settings.register_profile("rmqpy", deadline=None)
settings.load_profile("rmqpy")


@pytest.fixture(autouse=True)
def nothing_global_left() -> Iterator[None]:
    """No test leaves the process in another state for the tests after it in the same worker."""
    # A report of an outage is not repeated, and another test may have a server at the same address.
    if (outages := sys.modules.get("rmqpy.client.reports.outages")) is not None:
        outages._reported.clear()
    log = logging.getLogger("rmqpy")
    level, propagates, handlers = log.level, log.propagate, list(log.handlers)
    before = globals_of_process()
    yield
    # A command that runs in the process of the test installs its own log.
    log.setLevel(level)
    log.propagate, log.handlers = propagates, handlers
    after = globals_of_process()
    names = sorted(name for name in before.keys() | after if before.get(name) != after.get(name))
    left = {name: (before.get(name), after.get(name)) for name in names}
    assert not left, f"left changed, before and after: {left}"


def globals_of_process() -> dict[str, object]:
    """What tests have changed at times: environment, folder, signals, the root logger, telemetry of every client."""
    observers = sys.modules.get("rmqpy.client.observers")
    environment = {f"${name}": value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return environment | {
        "folder": os.getcwd(),
        "level of the root logger": logging.root.level,
        "handlers of the root logger": list(logging.root.handlers),
        "SIGINT": signal.getsignal(signal.SIGINT),
        "SIGTERM": signal.getsignal(signal.SIGTERM),
        "telemetry": list(observers.EVERYWHERE) if observers else [],
    }


@pytest.fixture(scope="module")
def server() -> Iterator["Standalone"]:
    """A name server and a broker with the defaults of `rmqpy.testing`, for the tests of one file."""
    # Imported here, as below: some tests read sources alone, and need no build.
    from rmqpy.testing import broker

    with broker() as server:
        yield server


@pytest.fixture
async def namesrv() -> AsyncIterator[str]:
    """The address of a name server that keeps nothing on the disk."""
    from rmqpy.config.namesrv import NameServerConfig
    from rmqpy.namesrv import NameServer

    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as server:
        yield server.address


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=["all", "quick", "rest"],
        default="all",
        help="rest: the tests that tests/slow.txt lists; quick: the others",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--part")
    if part == "all":
        return
    slow = slow_tests()
    chosen = [item for item in items if is_slow(item.nodeid, slow) == (part == "rest")]
    if len(chosen) != len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what a test has logged or printed that is not UTF-8: a worker cannot send it."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode("utf-8")) for name, text in report.sections
    ]
    return report
