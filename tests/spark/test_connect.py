"""Spark Connect and declarative pipelines, which run the connector on a server. Need `pyspark[pipelines]`."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqpy import testing
from rmqpy.server import Standalone

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("grpc", "pandas")),
        reason="Spark Connect needs pyspark[connect]",
    ),
]

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"


def test_a_connect_client_reads_writes_and_streams(
    server: Standalone, topic: str, other_topic: str, tmp_path: Path
) -> None:
    client = Path(__file__).with_name("connect_client.py")
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(client), server.namesrv, topic, other_topic, str(tmp_path)],
        env=os.environ | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"read": 20, "copied": 20, "sql": 20, "imports": 0}


@pytest.mark.skipif(
    importlib.util.find_spec("pyspark.pipelines") is None, reason="declarative pipelines need Spark 4.1"
)
def test_spark_pipelines_runs_the_example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    pipelines = importlib.import_module("pipelines")
    with testing.broker() as server:
        bodies = pipelines.main(server.namesrv, tmp_path)
        assert sorted(json.loads(body)["euro"] for body in bodies) == [150, 160, 170, 180, 190]
