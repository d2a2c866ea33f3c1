"""The Spark examples: they run unchanged, and do what they say."""

import importlib
import sys
from importlib.util import find_spec
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
    from pyspark import cloudpickle

    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    found = importlib.import_module(request.function.__name__.removeprefix("test_"))
    # A program that is run is `__main__`, whose classes and functions travel to workers by value.
    cloudpickle.register_pickle_by_value(found)
    return found


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


@needs_admission
def test_to_delta(example: ModuleType, spark: "SparkSession", server: Standalone, tmp_path: Path) -> None:
    assert example.main(spark, server.namesrv, tmp_path) == 90


@needs_admission
def test_to_iceberg(example: ModuleType, spark: "SparkSession", server: Standalone, tmp_path: Path) -> None:
    assert example.main(spark, server.namesrv, tmp_path) == 90


def test_deduplicated(example: ModuleType, spark: "SparkSession", server: Standalone, tmp_path: Path) -> None:
    found = example.main(spark, server.namesrv, tmp_path)
    assert sorted(found) == sorted(f"order {number}" for number in range(30))


def test_joined(example: ModuleType, spark: "SparkSession", server: Standalone, tmp_path: Path) -> None:
    found = example.main(spark, server.namesrv, tmp_path)
    assert found == [(number, number % 2 == 0) for number in range(6)]


@pytest.mark.skipif("not has_state()", reason="transformWithState needs Spark 4.1 and pandas")
def test_sessions(example: ModuleType, spark: "SparkSession", server: Standalone, tmp_path: Path) -> None:
    try:
        found = example.main(spark, server.namesrv, tmp_path)
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    assert found == [("ann", 90, 7), ("bob", 0, 1), ("bob", 50, 6)]


def has_state() -> bool:
    from pyspark.sql import GroupedData

    return hasattr(GroupedData, "transformWithState") and find_spec("pandas") is not None
