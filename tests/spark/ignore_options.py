"""Ignore each option of the connector in turn, and see which test fails: `make spark-options`, four minutes.

Goal: no option can be forgotten without a test that says so. Method: `Options.parse` is replaced by one that leaves the
option at its default; then the tests that need no Spark session run until the first fails. In one process, because
starting Python and a broker anew for each would take most of the time.
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

TESTS = [f"tests/spark/test_{name}.py" for name in ("batch", "source", "sink", "stream")]
#: Without it there is no cluster to ask.
REQUIRED = "nameserver"

Parse = Callable[[Mapping[str, str], str | None], Options]


class FirstFailure:
    """Leaves out tests that need a session, and remembers which of the others failed."""

    def __init__(self) -> None:
        self.name: str | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if "spark" not in getattr(item, "fixturenames", ())]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.name is None:
            self.name = report.nodeid.rpartition("::")[2]


def ignoring(parse: Parse, field: "dataclasses.Field[Any]") -> Parse:
    """A parser that does not care what was asked of one option."""

    forgotten: dict[str, Any] = {field.name: field.default}

    def careless(given: Mapping[str, str], role: str | None = None) -> Options:
        return dataclasses.replace(parse(given, role), **forgotten)

    return careless


def failure(parse: Parse) -> str | None:
    """The first test that fails while options are parsed like this."""
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
