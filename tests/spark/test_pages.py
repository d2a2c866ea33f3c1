"""The page for users of Spark's Kafka connector: its programs run, and the options that it names exist."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rmqpy
from pyspark_rocketmq.options import table
from rmqpy import cli
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

PAGE = (Path(__file__).parents[2] / "docs" / "spark-from-kafka.md").read_text(encoding="utf-8")


def test_programs_run_as_they_stand(
    spark: "SparkSession",
    server: Standalone,
    producer: rmqpy.Producer,
    received: Callable[..., list[rmqpy.ReceivedMessage]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["topic", "create", "rides", "-n", server.namesrv]) == 0
    for fare in (5, 15, 25):
        producer.send("rides", json.dumps({"rider": f"r{fare}", "fare": fare}), tag="taxi")
    defined: dict[str, Any] = {"spark": spark}
    for program in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        here = program.replace("127.0.0.1:9876", server.namesrv).replace("checkpoints/", f"{tmp_path}/")
        exec(compile(here, "spark-from-kafka.md", "exec"), defined)
    defined["query"].processAllAvailable()
    defined["query"].stop()
    sent = {message.sharding_key: json.loads(message.body) for message in received("expensive")}
    assert sent == {f"r{fare}": {"rider": f"r{fare}", "fare": fare} for fare in (15, 25)}
    assert '{"rider": "r25"' in capfd.readouterr().out


def test_named_options_exist() -> None:
    known = set(re.findall(r"^\| ([\w.]+)", table(), re.MULTILINE))
    for part in ("## Options of the source", "## Options of the sink"):
        rows = PAGE.partition(part)[2].partition("\n## ")[0]
        ours = [line.split(" | ")[1] for line in rows.splitlines() if line.startswith("| `")]
        named = {name for cell in ours for name in re.findall(r"`([a-zA-Z.]+)`", cell)}
        assert named - known - {"group", "shardingKey", "msgId"} == set()
