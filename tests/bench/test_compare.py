"""The comparison's arithmetic and report, on made-up results, and the consistency of its parts."""

import dataclasses
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import bulk, features, kinds, report, sequential_writer, write_paths
from benchmarks.cells import CELLS, Bar, named
from benchmarks.chart import chart
from benchmarks.interval import RunMetrics
from benchmarks.measure import QUICK, Round, record, take_turns
from benchmarks.producer import _REPORT
from benchmarks.wire import is_accepted, is_listening
from rmqpy.testing import broker

ROOT = Path(__file__).resolve().parents[2]


def metrics(scale: float) -> RunMetrics:
    names = ("throughput", "p50_us", "p99_us", "p999_us", "cpu_us", "load_cores", "other_cores", "refused")
    more = ("start_ms", "memory_bytes", "mean_us")
    return dict.fromkeys((*names, *more), 100 * scale)


@pytest.fixture
def whole() -> dict[str, Any]:
    """A report in which rmqpy has twenty times every metric of Apache's."""
    measured = record(
        [Round(metrics(20), metrics(1), metrics(1)), Round(metrics(40), metrics(2), metrics(2))]
    )
    verbs = {"send": [{"throughput": 1.0, "client_cpu_us": 2.0}]}
    cell = measured | {
        "at": "now",
        "revision": "abc",
        "settings": {"rmqpy": "a=1", "apache": "a=1"},
        "verbs": verbs,
        "waiting": [{"consumer_bytes": 2048.0}],
        "peers": {"client 1 at Broker": {"broker-poll": verbs["send"]}},
    }
    machine = {"processor": "p", "cores": 2, "memory_bytes": 2**30, "system": "s", "python": "3"}
    pace = {"pairs": 2, "seconds": 1}
    about = {"machine": machine, "java": "j", "java_options": [], "rmqpy": "0", "command": "c", "pace": pace}
    return {"cells": {one.name: cell for one in CELLS}, "about": about}


def test_the_ratio_is_the_median_over_pairs_and_not_the_ratio_of_medians() -> None:
    pairs = [({"x": 1.0}, {"x": 1.0}), ({"x": 9.0}, {"x": 3.0}), ({"x": 2.0}, {"x": 8.0})]
    recorded = record([Round(ours, theirs) for ours, theirs in pairs])
    assert recorded["ratios"] == {"x": 1.0}
    assert recorded["medians"] == {"rmqpy": {"x": 2.0}, "apache": {"x": 3.0}}


@dataclass
class Measurable:
    """One side of a comparison with made-up runs, and the processor time of others during each."""

    name: str
    others: list[float]
    is_stopped: bool = False
    pids: tuple[int, ...] = ()

    def load_command(self, work: str, topic: str, /, *options: str) -> list[str]:
        raise AssertionError("its runs are made up")

    def settle(self) -> None:
        pass

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize(
    ("a", "b", "kept"),
    [
        ([0.05], [0.1], (0.05, 0.1)),
        ([0.05, 0.02], [0.11, 0.03], (0.02, 0.03)),
        ([0.5, 0.4, 0.3, 0.6], [0.5, 0.1, 0.2, 0.6], (0.3, 0.2)),
    ],
)
def test_disturbed_round_is_measured_again_a_few_times(
    a: list[float], b: list[float], kept: tuple[float, float]
) -> None:
    sides = [Measurable("a", a), Measurable("b", b)]
    runs = iter([others for pair in zip(a, b, strict=True) for others in pair])
    told: list[str] = []
    pace = dataclasses.replace(QUICK, pairs=1)
    [found] = take_turns(
        sides, lambda side: None, lambda side: {"other_cores": next(runs)}, pace, told.append
    )
    assert tuple(run["other_cores"] for run in found) == kept
    assert sum("is discarded" in line for line in told) == len(a) - (len(a) < 4)
    assert next(runs, None) is None, "and no more often than that"
    assert all(side.is_stopped for side in sides)


def test_idle_side_is_suspended_during_a_measurement() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        sides = [Measurable("loaded", []), Measurable("waiting", [], pids=(busy.pid,))]
        pace = dataclasses.replace(QUICK, pairs=1)

        def measure(side: Measurable) -> RunMetrics:
            if side.name == "loaded":
                os.waitid(os.P_PID, busy.pid, os.WSTOPPED)
            return {"is_stopped": _state(busy.pid) == "T"}

        try:
            [[beside_it, itself]] = take_turns(sides, lambda side: None, measure, pace, lambda line: None)
            assert _state(busy.pid) != "T", "it goes on afterwards"
        finally:
            busy.kill()
    assert (beside_it["is_stopped"], itself["is_stopped"]) == (True, False)


def _state(pid: int) -> str:
    """Return the state of a process from the kernel; T while it is suspended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("bar", "ratio", "holds", "text"),
    [
        (Bar("throughput", 3.5), 3.5, True, "messages/s ≥ 3.5×"),
        (Bar("throughput", 3.5), 3.4, False, "messages/s ≥ 3.5×"),
        (Bar("cpu", 1 / 8), 0.12, True, "broker CPU per message ≤ 1/8"),
        (Bar("cpu", 1 / 8), 0.13, False, "broker CPU per message ≤ 1/8"),
        (Bar("floor", 2.2), 2.2, True, "broker CPU per message, over the floor's ≤ 2.2×"),
    ],
)
def test_bar_has_a_direction(bar: Bar, ratio: float, holds: bool, text: str) -> None:
    assert (bar.holds(ratio), bar.text()) == (holds, text)


def test_the_report_judges_every_bar_and_shows_every_cell(whole: dict[str, Any]) -> None:
    document = report.document(whole)
    for cell in CELLS:
        assert cell.title in document
    # Ten times as much: good where more is better, a miss everywhere else.
    held = sum(bar.metric == "throughput" for cell in CELLS for bar in cell.bars)
    total = sum(len(cell.bars) for cell in CELLS)
    assert document.count("| held |") == held
    assert document.count("**missed**") == total - held
    assert report.summary(whole).startswith(f"{held} of {total} bars hold")


def test_the_table_of_write_paths_has_a_row_for_each_side_of_each_cell() -> None:
    for flush, names in write_paths.SIDES.items():
        sides = {name: [metrics(1), metrics(3), metrics(2)] for name in names}
        rows = write_paths.table(flush, {"1 × 1": sides, "64 × 1": sides}).splitlines()[2:]
        assert [row.split(" | ")[1] for row in rows] == [*names.values()] * 2
        assert rows[0].startswith("| 1 × 1 | ")
        assert "200 (100 – 300)" in rows[0]
        assert ("1.00× |" in rows[0]) == ("floor" in names)


def test_the_table_of_kinds_has_the_median_of_the_ratios_of_the_rounds() -> None:
    rounds = [[metrics(6), metrics(2)], [metrics(9), metrics(1)], [metrics(4), metrics(2)]]
    ours, apaches = kinds.table({"transactions, 1 × 1": rounds}).splitlines()[2:]
    assert ours == "| transactions, 1 × 1 | rmqpy | 600 | 600 us | 600.00 us | 3.00× |"
    assert apaches == "|  | Apache 5.5.0 | 200 | 200 us | 200.00 us |  |"


def test_feature_table_compares_the_kept_throughput_of_brokers() -> None:
    sides = {
        "rmqpy": [metrics(10), metrics(10)],
        "rmqpy-with": [metrics(9), metrics(8)],
        "apache": [metrics(2), metrics(4)],
        "apache-with": [metrics(1), metrics(2)],
    }
    ours, apaches = features.table({"TLS, 64 × 1": sides}).splitlines()[2:]
    cells = "1,000/s | 850/s | 0.85 | 1000.00 → 850.00 us | 1 ms → 850 us | 1.70 |"
    assert ours == f"| TLS, 64 × 1 | rmqpy | {cells}"
    assert apaches == "|  | apache | 300/s | 150/s | 0.50 | 300.00 → 150.00 us | 300 us → 150 us |  |"


def test_large_batches_are_compared_with_a_plain_writer() -> None:
    rate = {"mb_s": 300.0, "mb_s_synced": 200.0, "cpu_us": 1000.0}
    runs = {name: [rate | {"p50_us": 5000.0, "p99_us": 9000.0}] * 2 for name in bulk.NAMES} | {
        "writer": [rate]
    }
    rows = bulk.table(runs).splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [*bulk.NAMES.values()]
    assert rows[0].startswith(
        f"| {bulk.NAMES['rmqpy']} | 300 (300 – 300) | 200 (200 – 200) | 5 ms (5 ms – 5 ms) | 9 ms"
    )
    assert " |  |  | 1 ms" in rows[-1], "it answers nobody"


def test_plain_writer_counts_its_bytes_and_deletes_its_file(tmp_path: Path) -> None:
    result = bulk.writer(tmp_path, 0.1)
    assert 0 < result["mb_s_synced"] <= result["mb_s"]
    counts = sequential_writer.write(tmp_path / "plain", 0.05)
    assert counts["bytes"] > 0
    assert counts["bytes"] % sequential_writer.PIECE_BYTES == 0
    assert 0.05 <= counts["seconds"] <= counts["synced_seconds"]
    assert list(tmp_path.iterdir()) == []


def test_a_row_of_a_load_has_its_bytes_a_second() -> None:
    [row] = report.load_rows(named("bulk")[0], {"rmqpy": [metrics(30), metrics(40), metrics(50)]})
    assert dict(zip(report.LOAD_HEAD, row, strict=True))["MB/s"] == "4"
    assert {cell.name: cell.body_bytes for cell in named("4x64,4x64-1k,bulk,pull-1")} == {
        "4x64": 128, "4x64-1k": 1024, "bulk": 1000, "pull-1": 128
    }  # fmt: skip


def test_cells_that_did_not_run_are_marked(whole: dict[str, Any]) -> None:
    whole["cells"] = {"4x64": whole["cells"]["4x64"]}
    assert "not measured" in report.document(whole)
    assert report.summary(whole).startswith("1 of 3 bars hold")


def test_the_drawing_has_two_bars_for_each_load(whole: dict[str, Any]) -> None:
    drawing = ElementTree.fromstring(chart(whole))
    rows = [cell for cell in CELLS if cell.kind in ("produce", "consume", "java-producer")]
    assert len(drawing.findall("{http://www.w3.org/2000/svg}rect")) == 1 + 2 * len(rows)


def test_names_of_cells_are_names_and_a_wrong_one_is_refused() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    assert all(re.fullmatch(r"[a-z0-9-]+", cell.name) for cell in CELLS)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--cells", "nonsense"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert named("1x1, batch") == (CELLS[0], CELLS[5])


def test_the_last_report_of_javas_producer_is_understood() -> None:
    line = (
        "Current Time: 2026-11-21 16:00:01,003 | Send TPS: 30145 | Max RT(ms): 214 | "
        "Average RT(ms):   2.113 | Send Failed: 0 | Response Failed: 0"
    )
    assert _REPORT.findall(line) == [("30145", "2.113", "0")]


def test_a_send_counts_as_accepted_only_when_a_broker_has_stored_it() -> None:
    with broker() as server:
        address = server.broker
        assert is_listening(address)
        assert is_accepted(address, "fresh")
    assert not is_listening(address)
    assert not is_accepted(address, "fresh")
