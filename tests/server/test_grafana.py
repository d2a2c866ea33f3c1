"""Boards and alert rules: every metric that they name is one that a broker has, and Prometheus can read them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqpy import cli
from rmqpy.monitor import grafana

DOCUMENT = Path(__file__).parents[2] / "docs/monitoring.md"
METRIC = re.compile(r"\b(?:rocketmq|rmqpy|process)_[a-z_]+")
PROMTOOL = shutil.which("promtool")


def documented() -> set[str]:
    text = DOCUMENT.read_text("utf-8")
    # Those of the process are named as Prometheus' client libraries name them.
    return set(METRIC.findall(text)) | {"process_resident_memory_bytes", "process_cpu_seconds_total"}


def queries() -> list[str]:
    return [query for _, _, panels, _ in grafana.BOARDS for panel in panels for query, _ in panel.queries]


def test_boards_and_alerts_name_metrics_that_are_documented() -> None:
    expressions = re.findall(r"expr: (?:>-\n)?((?:.|\n)*?)\n +(?:for|labels):", grafana.alerts())
    assert len(expressions) == grafana.alerts().count("- alert:")
    named = {
        name.removesuffix("_bucket") for text in (*queries(), *expressions) for name in METRIC.findall(text)
    }
    assert named
    assert named <= documented()


def test_they_are_written_as_grafana_and_prometheus_read_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["dashboard", "--grafana", str(tmp_path / "boards")]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in written] == [
        "rmqpy-alerts.yml",
        "rmqpy-operator.json",
        "rmqpy-application.json",
    ]
    for path in written[1:]:
        board = json.loads(path.read_text("utf-8"))
        variables = {each["name"] for each in board["templating"]["list"]}
        used = set(re.findall(r"\$(\w+)", json.dumps(board["panels"]))) - {"__rate_interval"}
        assert used <= variables
        places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
        assert len(places) == len(set(places))


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on this machine")
def test_promtool_reads_the_rules_and_every_query(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    rules = [
        f"      - record: q:{number}\n        expr: {json.dumps(query.replace('$__rate_interval', '5m'))}"
        for number, query in enumerate(queries())
    ]
    (tmp_path / "alerts.yml").write_text(grafana.alerts())
    (tmp_path / "boards.yml").write_text("groups:\n  - name: boards\n    rules:\n" + "\n".join(rules) + "\n")
    for name in ("alerts.yml", "boards.yml"):
        done = subprocess.run(
            [PROMTOOL, "check", "rules", tmp_path / name], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
