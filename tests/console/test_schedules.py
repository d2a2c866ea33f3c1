"""Schedules of the console: list, pause, resume, delete."""

import pytest

import rmqpy
from apiclient import CHANGE, api_of
from console.test_login import config_of, cookie_of, log_in
from rmqpy.errors import ConfigError
from rmqpy.server import Standalone
from rmqpy.testing import broker


def test_schedules_are_listed_paused_resumed_and_deleted(changing: Standalone) -> None:
    ask = api_of(changing.http)
    with rmqpy.Admin(changing.namesrv) as admin:
        admin.create_topic("jobs", read_queues=1, write_queues=1)
        admin.create_schedule(
            "nightly-report", "jobs", b"make the report", cron="0 2 * * *", zone="Europe/Berlin"
        )
        admin.create_schedule("often", "jobs", b"tick", every=3_600, tag="clock", keys="k", paused=True)
        nightly, often = ask("/schedules").json["rows"]
        expected = admin.schedule("nightly-report")
        assert (nightly["name"], nightly["cron"], nightly["zone"]) == (
            "nightly-report",
            "0 2 * * *",
            "Europe/Berlin",
        )
        assert (nightly["next_ms"], nightly["paused"]) == (expected.next_ms, False)
        assert nightly["preview"] == "make the report"
        assert (often["every"], often["tag"], often["keys"], often["paused"]) == (3_600, "clock", ["k"], True)

        def state(action: str, method: str = "POST") -> bool:
            path = f"/schedules/nightly-report{action}"
            answer = ask(path, method=method, body={}, headers=CHANGE)
            assert (answer.status, answer.json) == (200, None), answer.text
            return admin.schedule("nightly-report").paused

        assert state("/pause")
        assert ask("/schedules?filter=nightly").json["rows"][0]["paused"]
        assert not state("/resume")
        with pytest.raises(ConfigError, match="no schedule"):
            state("", "DELETE")
        assert [row["name"] for row in ask("/schedules").json["rows"]] == ["often"]
        unknown = ask("/schedules/nowhere/pause", method="POST", body={}, headers=CHANGE)
        assert (unknown.status, unknown.json["hint"]) == (400, "rmqpy schedule list")


def test_read_only_console_deletes_no_schedule(reading: Standalone) -> None:
    assert api_of(reading.http)("/schedules/often", method="DELETE", body={}, headers=CHANGE).status == 403


def test_bodies_of_schedules_are_hidden_like_those_of_messages() -> None:
    first = '{"username": "root", "password": "root-secret"}'
    access = {"authenticationEnabled": True, "authorizationEnabled": True, "initAuthenticationUser": first}
    with broker(httpPort=0, httpBodies="hidden", **access) as server, rmqpy.Admin(config_of(server)) as admin:
        admin.create_topic("jobs", read_queues=1, write_queues=1)
        admin.create_schedule("nightly", "jobs", b"a secret", every=3_600)
        admin.create_user("ann", "ann-secret")
        admin.set_rule("ann", "Cluster:*", ["Get", "List"])
        ask = api_of(server.http)

        def preview(user: str) -> str:
            session = cookie_of(log_in(ask, user, f"{user}-secret"))
            [row] = ask("/schedules", headers=session).json["rows"]
            return str(row["preview"])

        assert (preview("ann"), preview("root")) == ("(hidden)", "a secret")
