"""Common to all tests: hypothesis, programs under test that can be interrupted, servers, why a test ran again."""

import signal
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from rmqpy.server import Standalone

# A shell that runs the tests in the background has them ignore Ctrl-C, and every program they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines that run tests are shared: a slow example says nothing about the code. What a hang is, pytest-timeout knows.
settings.register_profile("rmqpy", deadline=None)
settings.load_profile("rmqpy")


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The failures for which tests ran again (`--reruns`), told otherwise only where the second run fails, too."""
    reports = terminalreporter.stats.get("rerun", [])
    if reports:
        terminalreporter.section("first runs of what ran again")
    for report in reports:
        terminalreporter.write_line(f"{report.nodeid} ({report.when})")
        terminalreporter.write_line(report.longreprtext)
        terminalreporter.write_line("\n".join(text for _, text in report.sections))
