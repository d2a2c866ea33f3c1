"""The Spark examples: they run unchanged, and do what they say."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from pyspark_rocketmq.features import ADMISSION
from rmqpy import testing
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

needs_admission = pytest.mark.skipif(
    not ADMISSION.is_offered,
    reason=f"limited batches of availableNow need {ADMISSION.name}, Spark {ADMISSION.since}",
)

FOLDER = Path(__file__).parents[2] / "examples" / "spark"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """The example a test is named after."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return importlib.import_module(request.function.__name__.removeprefix("test_"))


def test_to_parquet(example: ModuleType, spark: "SparkSession", server: Standalone, tmp_path: Path) -> None:
    example.main(spark, server.namesrv, tmp_path)
    zones = spark.read.parquet(str(tmp_path / "zones.parquet"))
    lines = [
        line for line in example.SAMPLE.read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")
    ]
    assert zones.count() == len(lines)
    plot = (tmp_path / "zones.svg").read_text(encoding="utf-8")
    assert plot.count("<rect") == zones.select("tags").distinct().count() + 1


def test_windows(example: ModuleType, spark: "SparkSession", server: Standalone, tmp_path: Path) -> None:
    counted = example.main(spark, server.namesrv, tmp_path)
    assert counted == [("12:00", "DE", 10), ("12:00", "FR", 20), ("12:01", "DE", 10), ("12:01", "FR", 20)]


@needs_admission
def test_watched(example: ModuleType, spark: "SparkSession", tmp_path: Path) -> None:
    with testing.broker(httpPort=0) as server:
        seen = example.main(spark, server.namesrv, server.http, tmp_path)
    assert [each.spark for each in seen] == [120, 40, 0]
    assert [(each.console, each.board, each.read) for each in seen] == [
        (120, 120, 80),
        (40, 40, 160),
        (0, 0, 200),
    ]


def test_to_topic(example: ModuleType, spark: "SparkSession", server: Standalone, tmp_path: Path) -> None:
    assert example.main(spark, server.namesrv, tmp_path) == 50


@needs_admission
def test_to_sqlite(example: ModuleType, spark: "SparkSession", server: Standalone, tmp_path: Path) -> None:
    assert example.main(spark, server.namesrv, tmp_path) == {"/help": 30, "/home": 60}
