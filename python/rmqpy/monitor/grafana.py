"""Grafana dashboards for brokers' metrics, and Prometheus alert rules.

A dashboard is a table of panels; everything else is the same for all. Pure, but for `export`.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

#: Panels per row, and their size in Grafana's grid units.
_COLUMNS: Final = 2
_WIDTH: Final = 12
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
#: Filters of a dashboard.
_BROKER: Final = 'cluster=~"$cluster",node_id=~"$broker"'
_TOPIC: Final = f'{_BROKER},topic=~"$topic"'
_GROUP: Final = f'{_TOPIC},consumer_group=~"$group"'
_SENDS: Final = f'{_BROKER},request_code=~"SEND_.*"'


class Panel(NamedTuple):
    """One panel: queries with the legend of their lines."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def _rate(name: str, labels: str, by: str) -> str:
    return f"sum by ({by}) (rate({name}{{{labels}}}[$__rate_interval]))"


def _quantile(share: float, name: str, labels: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{name}_bucket', labels, 'le, node_id')})"


OPERATOR: Final = (
    Panel("Messages in", "ops", ((_rate("rmqpy_puts_total", _BROKER, "node_id"), "{{node_id}}"),)),
    Panel("Messages out", "ops", ((_rate("rmqpy_got_messages_total", _BROKER, "node_id"), "{{node_id}}"),)),
    Panel("Bytes in", "Bps", ((_rate("rmqpy_put_bytes_total", _BROKER, "node_id"), "{{node_id}}"),)),
    Panel(
        "Replies to sends",
        "ms",
        (
            (_quantile(0.5, "rocketmq_rpc_latency", _SENDS), "{{node_id}} median"),
            (_quantile(0.99, "rocketmq_rpc_latency", _SENDS), "{{node_id}} 99 %"),
        ),
    ),
    Panel(
        "Largest lags",
        "short",
        ((f"topk(10, rocketmq_consumer_lag_messages{{{_BROKER}}})", "{{consumer_group}} in {{topic}}"),),
    ),
    Panel(
        "Dead letters",
        "ops",
        ((_rate("rocketmq_send_to_dlq_messages_total", _BROKER, "consumer_group"), "{{consumer_group}}"),),
    ),
    Panel("Free disk", "bytes", ((f"rmqpy_disk_free_bytes{{{_BROKER}}}", "{{node_id}}"),)),
    Panel(
        "Not on disk, not visible yet",
        "bytes",
        (
            (f"rocketmq_storage_flush_behind_bytes{{{_BROKER}}}", "{{node_id}} not on disk"),
            (f"rocketmq_storage_dispatch_behind_bytes{{{_BROKER}}}", "{{node_id}} not visible"),
        ),
    ),
    Panel(
        "Refused and failed",
        "ops",
        (
            (_rate("rmqpy_overloads_total", _BROKER, "node_id"), "{{node_id}} overload"),
            (_rate("rmqpy_put_failures_total", _BROKER, "node_id"), "{{node_id}} not stored"),
            (
                _rate("rmqpy_connections_refused_total", _BROKER, "node_id, limit"),
                "{{node_id}} connections, {{limit}}",
            ),
        ),
    ),
    Panel("Connections", "short", ((f"rmqpy_connections{{{_BROKER}}}", "{{node_id}}"),)),
    Panel("Memory", "bytes", ((f"process_resident_memory_bytes{{{_BROKER}}}", "{{node_id}}"),)),
    Panel(
        "Processor time",
        "percentunit",
        ((_rate("process_cpu_seconds_total", _BROKER, "node_id"), "{{node_id}}"),),
    ),
)
APPLICATION: Final = (
    Panel("Messages in", "ops", ((_rate("rocketmq_messages_in_total", _TOPIC, "topic"), "{{topic}}"),)),
    Panel(
        "Messages out",
        "ops",
        (
            (
                _rate("rocketmq_messages_out_total", _GROUP, "consumer_group, topic"),
                "{{consumer_group}} of {{topic}}",
            ),
        ),
    ),
    Panel(
        "Lag in messages",
        "short",
        (
            (
                f"sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{{{_GROUP}}})",
                "{{consumer_group}} in {{topic}}",
            ),
        ),
    ),
    Panel(
        "Lag in time",
        "ms",
        (
            (
                f"max by (consumer_group, topic) (rocketmq_consumer_lag_latency{{{_GROUP}}})",
                "{{consumer_group}} in {{topic}}",
            ),
        ),
    ),
    Panel(
        "Delivered but uncommitted, undelivered",
        "short",
        (
            (
                f"sum by (consumer_group) (rocketmq_consumer_inflight_messages{{{_GROUP}}})",
                "{{consumer_group}} not finished",
            ),
            (
                f"sum by (consumer_group) (rocketmq_consumer_ready_messages{{{_GROUP}}})",
                "{{consumer_group}} not delivered",
            ),
        ),
    ),
    Panel(
        "Members",
        "short",
        (
            (
                f'sum by (consumer_group) (rocketmq_consumer_connections{{{_BROKER},consumer_group=~"$group"}})',
                "{{consumer_group}}",
            ),
        ),
    ),
    Panel(
        "Given up",
        "ops",
        (
            (
                _rate(
                    "rocketmq_send_to_dlq_messages_total",
                    f'{_BROKER},consumer_group=~"$group"',
                    "consumer_group",
                ),
                "{{consumer_group}}",
            ),
        ),
    ),
    Panel(
        "Transactions",
        "ops",
        (
            (_rate("rocketmq_commit_messages_total", _TOPIC, "topic"), "{{topic}} committed"),
            (_rate("rocketmq_rollback_messages_total", _TOPIC, "topic"), "{{topic}} rolled back"),
        ),
    ),
)
SPARK: Final = (
    Panel(
        "Rows into the topics", "ops", ((_rate("rocketmq_messages_in_total", _TOPIC, "topic"), "{{topic}}"),)
    ),
    Panel(
        "Rows read by streams",
        "ops",
        (
            (
                _rate("rocketmq_messages_out_total", _GROUP, "consumer_group, topic"),
                "{{consumer_group}} of {{topic}}",
            ),
        ),
    ),
    Panel(
        "Progress: rows read since the broker's start",
        "short",
        (
            (
                f"sum by (consumer_group, topic) (rocketmq_messages_out_total{{{_GROUP}}})",
                "{{consumer_group}} of {{topic}}",
            ),
        ),
    ),
    Panel(
        "Pending rows",
        "short",
        (
            (
                f"sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{{{_GROUP}}})",
                "{{consumer_group}} in {{topic}}",
            ),
        ),
    ),
    Panel(
        "Age of the oldest",
        "ms",
        (
            (
                f"max by (consumer_group, topic) (rocketmq_consumer_lag_latency{{{_GROUP}}})",
                "{{consumer_group}} in {{topic}}",
            ),
        ),
    ),
)
#: File name, title, panels, and filters besides cluster and broker.
BOARDS: Final = (
    ("rmqpy-operator", "rmqpy: brokers", OPERATOR, ()),
    ("rmqpy-application", "rmqpy: topics and groups", APPLICATION, ("topic", "consumer_group")),
    ("rmqpy-spark", "rmqpy: Spark streams", SPARK, ("topic", "consumer_group")),
)


def board(uid: str, title: str, panels: tuple[Panel, ...], narrowed: tuple[str, ...]) -> dict[str, Any]:
    """A dashboard for Grafana's import."""
    names = {"consumer_group": "group"}
    variables = [
        _variable("cluster", "label_values(rmqpy_build_info, cluster)"),
        _variable("broker", 'label_values(rmqpy_build_info{cluster=~"$cluster"}, node_id)'),
        *(
            _variable(names.get(label, label), f"label_values(rocketmq_consumer_lag_messages, {label})")
            for label in narrowed
        ),
    ]
    return {
        "uid": uid,
        "title": title,
        "tags": ["rmqpy", "rocketmq"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}, *variables]},
        "panels": [_panel(at, each) for at, each in enumerate(panels)],
    }


def _panel(at: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(at, _COLUMNS)
    return {
        "id": at + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for number, (query, legend) in enumerate(panel.queries)
        ],
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def alerts() -> str:
    """The Prometheus rules as YAML."""
    return (files("rmqpy.monitor") / "alerts.yml").read_text(encoding="utf-8")


def export(folder: Path) -> list[Path]:
    """Write dashboards and rules to a folder. Returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "rmqpy-alerts.yml"]
    written[0].write_text(alerts(), encoding="utf-8")
    for uid, title, panels, narrowed in BOARDS:
        path = folder / f"{uid}.json"
        path.write_text(json.dumps(board(uid, title, panels, narrowed), indent=2) + "\n", encoding="utf-8")
        written.append(path)
    return written
