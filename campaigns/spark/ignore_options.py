"""Options of the connector, ignored one by one until a test fails: `make campaign NAME=spark-options`.

Goal: ignoring an option makes at least one test fail. Method: `Options.parse` is replaced by a version that leaves one
option at its default; then the tests that need no Spark session run until the first failure. All runs share one
process, since most of the time would go into starting Python and a broker.
"""

import contextlib
import dataclasses
import io
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pyspark_rocketmq.options import Options, spelling

TESTS = [
    f"tests/spark/test_{name}.py" for name in ("batch", "pushdown", "source", "sink", "stream", "versions")
]
#: Without it the tests have no cluster.
REQUIRED = "nameserver"

Parse = Callable[[Mapping[str, str], str | None], Options]


class FirstFailure:
    """Leaves out tests that need a session, and records the first failure of the others."""

    def __init__(self) -> None:
        self.name: str | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if "spark" not in getattr(item, "fixturenames", ())]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.name is None:
            self.name = report.nodeid.rpartition("::")[2]


def ignoring(parse: Parse, field: "dataclasses.Field[Any]") -> Parse:
    """Return a parser that leaves one option at its default."""

    forgotten: dict[str, Any] = {field.name: field.default}

    def careless(given: Mapping[str, str], role: str | None = None) -> Options:
        return dataclasses.replace(parse(given, role), **forgotten)

    return careless


def failure(parse: Parse) -> str | None:
    """Return the first test that fails with this parser."""
    first = FirstFailure()
    parsed = Options.parse
    Options.parse = staticmethod(parse)  # type: ignore[method-assign, assignment]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *TESTS], plugins=[first])
    finally:
        Options.parse = parsed  # type: ignore[method-assign]
    if code == pytest.ExitCode.OK:
        return None
    if first.name is None:
        raise SystemExit(f"the tests do not run: pytest ended with {code!r}")
    return first.name


def main() -> None:
    """Every option, or those named on the command line."""
    parse = Options.parse
    if broken := failure(parse):
        raise SystemExit(f"{broken} fails while no option is ignored")
    missed = []
    for field in dataclasses.fields(Options):
        name = spelling(field)
        if field.name == REQUIRED or (sys.argv[1:] and name not in sys.argv[1:]):
            continue
        began = time.monotonic()
        failed = failure(ignoring(parse, field))
        missed += [] if failed else [name]
        print(f"{name:36} {failed or 'NO TEST FAILS'} ({time.monotonic() - began:.0f} s)", flush=True)
    raise SystemExit(f"no test fails without {', '.join(missed)}" if missed else None)


if __name__ == "__main__":
    main()
