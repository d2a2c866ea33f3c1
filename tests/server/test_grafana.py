"""Boards and alert rules: brokers have every named metric, and Prometheus can read them."""

import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

import rmqpy
from rmqpy import cli
from rmqpy.monitor import grafana
from rmqpy.testing import broker

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/monitoring.md"
METRIC = re.compile(r"\b(?:rocketmq|rmqpy|process)_[a-z_]+")
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=ROOT / ".tools")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool on this machine: scripts/promtool")


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


def test_dashboards_and_alerts_are_valid_for_grafana_and_prometheus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["dashboard", "--grafana", str(tmp_path / "boards")]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in written] == [
        "rmqpy-alerts.yml",
        "rmqpy-operator.json",
        "rmqpy-application.json",
        "rmqpy-spark.json",
    ]
    for path in written[1:]:
        board = json.loads(path.read_text("utf-8"))
        variables = {each["name"] for each in board["templating"]["list"]}
        used = set(re.findall(r"\$(\w+)", json.dumps(board["panels"]))) - {"__rate_interval"}
        assert used <= variables
        places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
        assert len(places) == len(set(places))


def promtool(*arguments: str, text: str = "") -> None:
    """Run it; its output is the failure message."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_reads_the_rules_and_every_query(tmp_path: Path) -> None:
    rules = [
        f"      - record: q:{number}\n        expr: {json.dumps(query.replace('$__rate_interval', '5m'))}"
        for number, query in enumerate(queries())
    ]
    (tmp_path / "alerts.yml").write_text(grafana.alerts())
    (tmp_path / "boards.yml").write_text("groups:\n  - name: boards\n    rules:\n" + "\n".join(rules) + "\n")
    for name in ("alerts.yml", "boards.yml"):
        promtool("check", "rules", str(tmp_path / name))


@needs_promtool
def test_promtool_finds_nothing_wrong_with_what_a_busy_broker_and_its_name_server_expose() -> None:
    with broker(httpPort=0) as server, rmqpy.Producer(server.namesrv, group="shop") as producer:
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_topic("orders", read_queues=1, write_queues=1)
        producer.send("orders", b"hello")
        producer.send("orders", b"later", deliver_after=60)
        with producer.transaction("orders", b"half"):
            pass
        with rmqpy.PullConsumer("billing", server.namesrv, start_from="earliest") as consumer:
            consumer.assign(consumer.queues("orders"))
            assert consumer.poll(30)
            consumer.commit()
        with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=30) as answer:
            text = answer.read().decode()
    assert "rocketmq_rpc_latency_bucket" in text
    promtool("check", "metrics", text=text)


@needs_promtool
def test_alerts_fire_only_on_their_condition(tmp_path: Path) -> None:
    """promtool's tests of rules: a broker that refuses messages, next to one that does not."""
    (tmp_path / "alerts.yml").write_text(grafana.alerts())
    series = [
        {"series": f'rmqpy_accepts_messages{{node_id="{name}"}}', "values": f"{value}x20"}
        for name, value in (("broker-a", 0), ("broker-b", 1))
    ]
    test = {
        "rule_files": ["alerts.yml"],
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": 'ALERTS{alertname="BrokerRefusesMessages",alertstate="firing"}',
                        "eval_time": "10m",
                        "exp_samples": [
                            {
                                "labels": 'ALERTS{alertname="BrokerRefusesMessages",alertstate="firing",'
                                'severity="critical",node_id="broker-a"}',
                                "value": 1,
                            }
                        ],
                    }
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))
    promtool("test", "rules", str(tmp_path / "test.yml"))
