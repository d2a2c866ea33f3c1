"""Alerts: rules, state, receivers, and the way from a fault in a cluster to a webhook, a mail server and a command."""

import json
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rmqpy
from apiclient import CHANGE, api_of
from rmqpy.alerts import receivers
from rmqpy.alerts.rules import AlertConfig, Receiver, Rule, load, read
from rmqpy.alerts.state import AlertState, Fact, IsUnknown, Notice, facts_of_checks, facts_of_groups
from rmqpy.config.client import ClientConfig
from rmqpy.console.dashboard import Dashboard
from rmqpy.errors import ConfigError
from rmqpy.server import Thread
from rmqpy.testing import broker
from waiting import until

RECEIVER = {"receivers": {"ops": {"command": ["true"]}}}
KNOWN = IsUnknown(checks=False, groups=False)
DISK = ("disk of broker-a", "bad", "/data: 96 % of its disk is in use", "free space")
NO_MASTER = ("master of broker-b", "bad", "broker-b has no master", "start it")
SLOW = ("slave 1 of broker-a", "warn", "10 bytes behind for 90 s", "check its disk")
EXPIRED = ("certificate of 127.0.0.1:1", "bad", "has expired", "replace the file")
GONE = ("broker broker-c", "bad", "gone since 2026-01-31 12:03 UTC", "start it")
CHECKS = [DISK, NO_MASTER, SLOW, EXPIRED, GONE, ("clock of broker-a", "ok", "", None)]


@pytest.mark.parametrize(
    ("when", "extra", "subjects"),
    [
        ("disk", {}, ["disk of broker-a"]),
        ("no-master", {}, ["master of broker-b"]),
        ("replication", {}, []),
        ("replication", {"warnings": True}, ["slave 1 of broker-a"]),
        ("certificate", {}, ["certificate of 127.0.0.1:1"]),
        ("gone", {}, ["broker broker-c"]),
        ("check", {"checks": "*broker-a"}, ["disk of broker-a"]),
    ],
)
def test_rule_covers_checks(when: str, extra: dict[str, Any], subjects: list[str]) -> None:
    config = read({**RECEIVER, "rules": [{"when": when, **extra}]})
    assert [each.subject for each in facts_of_checks(config.rules, CHECKS)] == subjects


def test_rule_measures_groups() -> None:
    config = read(
        {
            **RECEIVER,
            "rules": [
                {"when": "lag", "groups": "billing*", "above": 10},
                {"when": "dead-letters"},
            ],
        }
    )
    found = facts_of_groups(
        config.rules, {"billing": 11, "billing-2": 10, "audit": 99}, {"audit": 1, "mail": 0}
    )
    assert [(each.rule.when, each.subject) for each in found] == [
        ("lag", "billing"),
        ("dead-letters", "audit"),
    ]
    assert "11 pending messages, more than 10" in found[0].found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no receiver"),
        (RECEIVER, "no rule"),
        ({**RECEIVER, "rules": [{"when": "weather"}]}, "when must be one of no-master"),
        ({**RECEIVER, "rules": [{"when": "disk", "to": "nowhere"}]}, "no receiver is called 'nowhere'"),
        ({**RECEIVER, "rules": [{"when": "disk", "colour": 1}]}, "unknown key 'colour'"),
        ({**RECEIVER, "rules": [{"when": "lag", "above": -1}]}, "above must be a number from 0"),
        ({**RECEIVER, "rules": [{"when": "disk"}, {"when": "disk"}]}, "two rules have one name"),
        ({"receivers": {"a": {}}, "rules": []}, "set one of webhook, smtp and command"),
        ({"receivers": {"a": {"webhook": "ftp://x"}}, "rules": []}, "not an http or https address"),
        ({"receivers": {"a": {"smtp": "mail"}}, "rules": []}, "mail needs smtp as host:port"),
    ],
)
def test_mistake_in_the_file_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(given)


def test_mistake_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "alerts.toml"
    file.write_text("[[rules]\n")
    with pytest.raises(ConfigError, match=str(file)):
        load(file)


def alert_state(repeat: float = 100, lasting: float = 0) -> tuple[AlertState, Fact]:
    rule = Rule("disks", "disk", lasting=lasting)
    config = AlertConfig((rule,), {"ops": Receiver("ops", command=("true",))}, repeat=repeat)
    return AlertState(config), Fact(rule, DISK[0], DISK[1], DISK[2], str(DISK[3]))


def kinds(found: list[Notice]) -> list[str]:
    return [each.kind for each in found]


def test_alert_fires_repeats_and_is_resolved() -> None:
    state, fact = alert_state()
    reported = [kinds(state.step(now, [fact], KNOWN)) for now in (0, 50, 100, 150, 200)]
    assert reported == [["firing"], [], ["repeated"], [], ["repeated"]]
    assert kinds(state.step(210, [], KNOWN)) == ["resolved"]
    assert kinds(state.step(220, [], KNOWN)) == []


def test_alert_waits_for_its_time_and_a_short_problem_is_not_reported() -> None:
    state, fact = alert_state(lasting=60)
    assert kinds(state.step(0, [fact], KNOWN)) == []
    assert kinds(state.step(30, [], KNOWN)) == []
    assert kinds(state.step(40, [fact], KNOWN)) == []
    assert kinds(state.step(100, [fact], KNOWN)) == ["firing"]


@pytest.mark.parametrize("key", ["disks", "disks: disk of broker-a"])
def test_silenced_alert_is_not_reported_until_the_silence_ends(key: str) -> None:
    state, fact = alert_state()
    assert state.silence(key, until=50)
    assert kinds(state.step(0, [fact], KNOWN)) == []
    assert state.silent_until(fact) == 50
    assert kinds(state.step(60, [fact], KNOWN)) == ["firing"]


def test_unknown_facts_do_not_end_an_alert() -> None:
    state, fact = alert_state()
    state.step(0, [fact], KNOWN)
    for unknown in (IsUnknown(True, False), IsUnknown(False, False, frozenset({"broker-a"}))):
        assert kinds(state.step(10, [], unknown)) == []
    assert kinds(state.step(20, [], KNOWN)) == ["resolved"]


class Sink(NamedTuple):
    """A receiver's server, and what arrived."""

    port: int
    got: list[Any]


@contextmanager
def webhook(status: list[int]) -> Iterator[Sink]:
    """A web server that answers with these statuses, the last one for ever."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code = status.pop(0) if len(status) > 1 else status[0]
            if code == 200:
                got.append((json.loads(body), self.headers.get("Authorization")))
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Sink(server.server_port, got)
        server.shutdown()


@contextmanager
def mail_server() -> Iterator[Sink]:
    """An SMTP server that takes every message (RFC 5321)."""
    got: list[Any] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.answer("220 sink")
            recipients = []
            while line := self.rfile.readline().decode().strip():
                verb = line.partition(" ")[0].upper()
                if verb == "RCPT":
                    recipients.append(line.partition(":")[2])
                if verb == "DATA":
                    self.answer("354 go on")
                    lines = []
                    while (text := self.rfile.readline().decode()) != ".\r\n":
                        lines.append(text)
                    got.append((recipients, "".join(lines)))
                self.answer("221 bye" if verb == "QUIT" else "250 ok")
                if verb == "QUIT":
                    return

        def answer(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Sink(server.server_address[1], got)
        server.shutdown()


def test_each_rule_reaches_webhook_mail_and_command_and_is_resolved(tmp_path: Path) -> None:
    secret, written = tmp_path / "secret", tmp_path / "written"
    secret.write_text("Bearer abc\n")
    script = "import sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read() + b'\\n')"
    with webhook([200]) as web, mail_server() as mail:
        config = read(
            {
                "receivers": {
                    "web": {"webhook": f"http://127.0.0.1:{web.port}/hook", "secret_file": str(secret)},
                    "mail": {
                        "smtp": f"127.0.0.1:{mail.port}",
                        "encryption": "none",
                        "from": "rmqpy@example.org",
                        "to": ["ops@example.org", "night@example.org"],
                    },
                    "run": {"command": [sys.executable, "-c", script, str(written)]},
                },
                "rules": [
                    {"when": each}
                    for each in (
                        "no-master",
                        "gone",
                        "disk",
                        "replication",
                        "certificate",
                        "lag",
                        "dead-letters",
                    )
                ],
                "console": "http://console.example.org/",
            }
        )
        slow = (SLOW[0], "bad", SLOW[2], SLOW[3])
        facts = [
            *facts_of_checks(config.rules, [DISK, NO_MASTER, slow, EXPIRED, GONE]),
            *facts_of_groups(config.rules, {"billing": 5}, {"audit": 2}),
        ]
        assert len(facts) == 7
        state = AlertState(config)
        notices = [*state.step(0, facts, KNOWN), *state.step(1, [], KNOWN)]
        assert kinds(notices) == ["firing"] * 7 + ["resolved"] * 7
        for notice in notices:
            for each in config.receivers.values():
                receivers.deliver(each, notice, config.console_url)
    subjects = [each.subject for each in notices]
    assert [(body["kind"], body["subject"]) for body, _ in web.got] == list(
        zip(kinds(notices), subjects, strict=True)
    )
    assert {header for _, header in web.got} == {"Bearer abc"}
    assert web.got[0][0]["console"] == "http://console.example.org/"
    assert [json.loads(line)["subject"] for line in written.read_bytes().splitlines()] == subjects
    assert len(mail.got) == 14
    to, text = mail.got[0]
    assert to == ["<ops@example.org>", "<night@example.org>"]
    assert f"Subject: [rmqpy] firing: {subjects[0]}" in text
    assert notices[0].advice in text


@pytest.mark.parametrize(
    "given",
    [
        {"webhook": "http://127.0.0.1:9/"},
        {"smtp": "127.0.0.1:9", "from": "a@b", "to": ["c@d"]},
        {"command": ["false"]},
        {"command": ["/no/such/program"]},
    ],
    ids=["webhook", "mail", "exit code", "no program"],
)
def test_failed_delivery_is_an_error(given: dict[str, Any]) -> None:
    config = read({"receivers": {"ops": given}, "rules": [{"when": "disk"}]})
    notice = Notice("test", "test", "test", "test", "warn", "this is a test", "", 0.0, ())
    with pytest.raises(OSError, match=r"refused|ended with|No such file"):
        receivers.deliver(config.receivers["ops"], notice, "")


def test_lag_of_a_group_is_reported_retried_silenced_and_resolved() -> None:
    with broker() as server, webhook([500, 200]) as web:
        config = AlertConfig(
            (Rule("behind", "lag", "billing", above=3), Rule("lost", "check")),
            {"ops": Receiver("ops", webhook=f"http://127.0.0.1:{web.port}/secret-path")},
            every=0.2,
        )
        client = ClientConfig(namesrv=server.namesrv)
        thread = Thread(dashboard := Dashboard(client, port=0, allow_changes=True, alerts=config))
        with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
            admin.create_topic("orders", read_queues=1, write_queues=1)
            admin.create_group("billing")
            for _ in range(5):
                producer.send("orders", b"x")
            with rmqpy.PullConsumer("billing", server.namesrv, start_from="earliest") as consumer:
                [queue] = consumer.queues("orders")
                consumer.commit({queue: 0})
            thread.start()
            try:
                ask = api_of(dashboard.address)
                # The first delivery was refused.
                until(lambda: web.got)
                body, _ = web.got[0]
                assert (body["kind"], body["subject"], body["rule"]) == ("firing", "billing", "behind")
                found = ask("/alerts").json
                assert found["is_on"]
                (row,) = found["status"]["alerts"]
                assert (row["id"], row["is_firing"]) == ("behind: billing", True)
                (target,) = found["status"]["receivers"]
                assert target["target"] == "http://127.0.0.1/…", "without its secret path"

                def change(path: str, **body: Any) -> int:
                    return ask(path, method="POST", body=body, headers=CHANGE).status

                assert change("/alerts/test", receiver="ops") == 200
                assert web.got[-1][0]["kind"] == "test"
                assert change("/alerts/test", receiver="nowhere") == 400
                assert change("/alerts/silence", key=row["id"], minutes=5) == 200
                (row,) = ask("/alerts").json["status"]["alerts"]
                assert row["silent_until_ms"] > time.time() * 1_000
                assert change("/alerts/silence", key="nothing", minutes=5) == 400
                with rmqpy.PullConsumer("billing", server.namesrv) as consumer:
                    consumer.commit({queue: 5})
                until(lambda: web.got[-1][0]["kind"] == "resolved")
                assert ask("/alerts").json["status"]["alerts"] == []
            finally:
                thread.stop()


def test_broker_watches_the_rules_of_its_file(tmp_path: Path) -> None:
    with webhook([200]) as web:
        file = tmp_path / "alerts.toml"
        file.write_text(
            f'every = 5\n[receivers.ops]\nwebhook = "http://127.0.0.1:{web.port}/"\n'
            '[[rules]]\nwhen = "check"\nchecks = "permission of *"\nwarnings = true\n'
        )
        with broker(httpPort=0, alertsFile=str(file), brokerPermission=4) as server:
            until(lambda: web.got)
            assert web.got[0][0]["found"].startswith("it refuses sends: brokerPermission=4")
            assert api_of(server.http)("/alerts").json["is_on"]


def test_console_without_rules_says_so() -> None:
    with broker(httpPort=0, httpAllowChanges=True) as server:
        ask = api_of(server.http)
        assert ask("/alerts").json["is_on"] is False
        answer = ask("/alerts/test", method="POST", body={"receiver": "ops"}, headers=CHANGE)
        assert answer.status == 400
        assert "alertsFile" in answer.json["hint"]
