"""The command line at a real cluster."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqpy import cli
from rmqpy.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(name_servers=2, brokers=["broker-a", "broker-b"]) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`run("topic", "list")`: exit code, the JSON on stdout, the text on stderr."""
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)

    def run(*arguments: str) -> tuple[int, Any, str]:
        code = cli.run([*arguments, "-o", "json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out else None, captured.err

    return run
