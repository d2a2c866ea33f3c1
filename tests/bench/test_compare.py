"""The comparison's arithmetic and its report, on made-up results; and that its parts fit together."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import peer_cells, report, sync
from benchmarks.cells import CELLS, Bar, named
from benchmarks.chart import chart
from benchmarks.measure import Pair, RunMetrics, record
from benchmarks.peers import OTHER_SYSTEMS
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
    """A report in which rmqpy has ten times every metric of Apache's."""
    measured = record([Pair(metrics(10), metrics(1)), Pair(metrics(20), metrics(2))])
    verbs = {"send": [{"throughput": 1.0, "client_cpu_us": 2.0}]}
    cell = measured | {
        "at": "now",
        "revision": "abc",
        "settings": {"rmqpy": "a=1", "apache": "a=1"},
        "verbs": verbs,
        "peers": {"client 1 at Broker": {"broker-poll": verbs["send"]}},
    }
    machine = {"processor": "p", "cores": 2, "memory_bytes": 2**30, "system": "s", "python": "3"}
    pace = {"pairs": 2, "seconds": 1}
    about = {"machine": machine, "java": "j", "java_options": [], "rmqpy": "0", "command": "c", "pace": pace}
    return {"cells": {one.name: cell for one in CELLS}, "about": about}


def test_the_ratio_is_the_median_over_pairs_and_not_the_ratio_of_medians() -> None:
    pairs = [({"x": 1.0}, {"x": 1.0}), ({"x": 9.0}, {"x": 3.0}), ({"x": 2.0}, {"x": 8.0})]
    recorded = record([Pair(ours, theirs) for ours, theirs in pairs])
    assert recorded["ratios"] == {"x": 1.0}
    assert recorded["medians"] == {"rmqpy": {"x": 2.0}, "apache": {"x": 3.0}}


@pytest.mark.parametrize(
    ("bar", "ratio", "holds", "text"),
    [
        (Bar("throughput", 3.5), 3.5, True, "messages/s ≥ 3.5×"),
        (Bar("throughput", 3.5), 3.4, False, "messages/s ≥ 3.5×"),
        (Bar("cpu", 1 / 8), 0.12, True, "broker CPU a message ≤ 1/8"),
        (Bar("cpu", 1 / 8), 0.13, False, "broker CPU a message ≤ 1/8"),
    ],
)
def test_a_bar_knows_which_way_is_up(bar: Bar, ratio: float, holds: bool, text: str) -> None:
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


def test_the_table_of_sync_flush_has_a_row_for_each_medium_and_window() -> None:
    sides = {name: [metrics(1), metrics(3), metrics(2)] for name in sync.NAMES}
    rows = sync.table({"1 × 1": sides, "64 × 1": sides}).splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == [*sync.NAMES.values()] * 2
    assert rows[0].startswith("| 1 × 1 | ")
    assert "200 (100 – 300)" in rows[0]


def test_other_brokers_stand_in_the_order_of_their_turns_with_rmqpys_ratio_to_each() -> None:
    ours = [metrics(2), metrics(9), metrics(4)]
    sides = {"rmqpy": ours, "Kafka": [metrics(1), metrics(3), metrics(8)], "NATS": ours}
    written = peer_cells.rows(named("4x64")[0], sides)
    assert [row[1] for row in written] == ["rmqpy", "Kafka", "NATS", "*rmqpy / Kafka*", "*rmqpy / NATS*"]
    assert written[1][2] == "300 (100 – 800)"
    # Turns are compared, not medians: 2, 3 and a half.
    assert [row[2] for row in written[3:]] == ["2", "1"]


def test_the_report_of_other_brokers_says_what_an_answer_promises() -> None:
    results = {cell: {"rmqpy": [metrics(1)], "Kafka": [metrics(1)]} for cell in named(peer_cells.CELLS)}
    document = peer_cells.document(results, {"Kafka 1": "a=b"}, OTHER_SYSTEMS, "about")
    assert all(cell.title in document for cell in results)
    assert all(kind.durability in document for kind in OTHER_SYSTEMS)
    assert "a=b" in document


def test_cells_that_have_not_run_are_named_as_such(whole: dict[str, Any]) -> None:
    whole["cells"] = {"4x64": whole["cells"]["4x64"]}
    assert "not measured" in report.document(whole)
    assert report.summary(whole).startswith("1 of 2 bars hold")


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
