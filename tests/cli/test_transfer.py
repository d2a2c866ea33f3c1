"""Exports of a cluster's definitions, and imports into another one."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rmqpy
from commandline import Run, runner
from rmqpy.server import Standalone
from rmqpy.testing import broker

ROOT = {"username": "root", "password": "root-secret"}


@contextmanager
def guarded() -> Iterator[Standalone]:
    with broker(
        authenticationEnabled=True, authorizationEnabled=True, initAuthenticationUser=json.dumps(ROOT)
    ) as server:
        yield server


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setenv("RMQPY_ACCESS_KEY", "root")
    monkeypatch.setenv("RMQPY_SECRET_KEY", "root-secret")


def admin_of(server: Standalone) -> rmqpy.Admin:
    credentials = rmqpy.Credentials("root", "root-secret")
    return rmqpy.Admin(rmqpy.ClientConfig(namesrv=server.namesrv, credentials=credentials))


def plan(run: Run, *arguments: str) -> dict[tuple[str, str], str]:
    code, out, err = run("cluster", "import", *arguments, "-o", "json")
    assert code == 0, err
    return {(row["kind"], row["name"]): row["action"] for row in json.loads(out)}


def test_import_makes_another_cluster_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], signed: None
) -> None:
    file = tmp_path / "cluster.json"
    with guarded() as server, admin_of(server) as admin:
        admin.create_topic("orders", read_queues=3, write_queues=2, perm="R", message_type="FIFO")
        admin.create_topic("lines", order=True)
        admin.create_group("billing", retry_max=3)
        admin.group_readable("billing", "lines", readable=False)
        admin.create_user("ann", "ann-secret")
        admin.create_user("bob", "bob-secret", is_super=True)
        admin.update_user("bob", is_enabled=False)
        admin.set_rule("ann", "Topic:orders", ["Pub"], sources=["10.0.0.0/8"])
        run = runner(server.namesrv, monkeypatch, capfd)
        assert run("cluster", "export", str(file))[0] == 0
        assert set(plan(run, str(file), "--dry-run").values()) == {"unchanged"}
        exported = json.loads(file.read_text())
    assert "secret" not in json.dumps({**exported, "remark": ""})
    assert [topic["name"] for topic in exported["topics"]] == ["lines", "orders"]
    with guarded() as server, admin_of(server) as admin:
        admin.create_group("billing", retry_max=7)
        run = runner(server.namesrv, monkeypatch, capfd)
        wanted = {
            ("topic", "lines"): "create",
            ("topic", "orders"): "create",
            ("group", "billing"): "change",
            ("user", "ann"): "create",
            ("user", "bob"): "create",
            ("user", "root"): "unchanged",
            ("rule", "ann Topic:orders"): "create",
        }
        assert plan(run, str(file), "--dry-run") == wanted
        code, _, err = run("cluster", "import", str(file))
        assert (code, "Import 9 changes into the cluster?" in err, "give --yes" in err) == (2, True, True)
        assert admin.topics() == []
        assert plan(run, str(file), "--yes") == wanted
        assert set(plan(run, str(file), "--dry-run").values()) == {"unchanged"}
        [orders] = admin.topic_settings("orders").values()
        assert (orders.read_queue_nums, orders.write_queue_nums, orders.perm) == (3, 2, 4)
        assert orders.attributes == {"message.type": "FIFO"}
        assert [group.retry_max_times for group in admin.group("billing").values()] == [3]
        assert set(admin.group_readable("billing", "lines").values()) == {False}
        assert {(user.name, user.is_super, user.is_enabled) for user in admin.users()} == {
            ("root", True, True),
            ("ann", False, True),
            ("bob", True, False),
        }
        # The name server has users, too.
        assert [(rule.user, rule.sources) for rule in admin.rules()] == [("ann", ["10.0.0.0/8"])] * 2
        again = tmp_path / "again.json"
        assert run("cluster", "export", str(again))[0] == 0
    same = ("topics", "groups", "users", "rules")
    assert {kind: json.loads(again.read_text())[kind] for kind in same} == {
        kind: exported[kind] for kind in same
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not valid JSON"),
        ("[]", "not an export"),
        ('{"kind": "other"}', "not an export"),
        ('{"kind": "rmqpy cluster", "format": 1, "topics": []}', "'groups' is missing"),
        (
            '{"kind": "rmqpy cluster", "format": 1, "topics": [{"name": "a b", "settings": {}}], "groups": [], '
            '"users": [], "rules": []}',
            "a b",
        ),
        (
            '{"kind": "rmqpy cluster", "format": 1, "topics": [{"name": "a", "brokers": ["broker-z"], '
            '"settings": {}}], "groups": [], "users": [], "rules": []}',
            "broker-z",
        ),
        (
            '{"kind": "rmqpy cluster", "format": 1, "topics": [{"name": "a", "settings": {"perm": "x"}}], '
            '"groups": [], "users": [], "rules": []}',
            "perm",
        ),
    ],
)
def test_invalid_export_is_refused(text: str, told: str, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(text)
    code, _, err = run("cluster", "import", str(file), "--yes")
    assert code == 2
    assert told in err
