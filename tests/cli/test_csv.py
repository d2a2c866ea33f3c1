"""CSV of commands at an empty cluster: the heading line is printed anyway."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqpy
from commandline import Run
from rmqpy.server import Standalone
from rmqpy.testing import SMALL, broker


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with broker() as server:
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_topic("orders", read_queues=1, write_queues=1)
            admin.create_group("billing")
        yield server


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("acl user list", "broker"),
        ("acl rule list", "broker"),
        ("client list --group billing", "group"),
        ("config diff broker-a broker-a", "key"),
        ("dlq list", "group"),
        ("dlq show billing", "topic"),
        ("dlq resend billing --all --yes", "message_id"),
        ("group lag billing", "topic"),
        ("group members billing", "client"),
        ("group skip billing --yes", "topic"),
        ("message find orders", "topic"),
        ("message timers nothing", "topic"),
        ("cluster replicas", "cluster"),
        ("topic list", "topic"),
        ("topic list --types", "topic"),
        ("topic status orders", "direction"),
        ("profile", "profile"),
        ("store dump {empty}", "position"),
        ("store stats {empty}", "topic"),
    ],
)
def test_csv_without_rows_has_its_headings(
    run: Run, command: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    if "{empty}" in command:
        with Standalone(tmp_path / "data", namesrv_port=0, broker_port=0, **SMALL):
            pass
    code, out, err = run(*command.format(empty=tmp_path / "data").split(), "-o", "csv")
    assert (code, "Error" in err) == (0, False), err
    headings, *rows = csv.reader(out.splitlines())
    assert headings[0] == first
    assert len(headings) > 1 or command == "topic list"
    assert all(len(row) == len(headings) for row in rows)
