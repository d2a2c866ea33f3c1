"""The command line at a real cluster."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from commandline import runner
from rmqpy.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(name_servers=2, brokers=["broker-a", "broker-b"]) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """`run("topic", "list")`: exit code, the JSON on stdout, the text on stderr."""
    typed = runner(cluster.namesrv, monkeypatch, capfd)

    def run(*arguments: str) -> tuple[int, Any, str]:
        code, out, err = typed(*arguments, "-o", "json")
        return code, json.loads(out) if out else None, err

    return run
