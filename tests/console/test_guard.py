"""Refusals of the console: refused requests, and their reasons."""

import asyncio
from pathlib import Path

import pytest

from apiclient import CHANGE, api_of
from rmqpy.config.client import ClientConfig
from rmqpy.console.dashboard import Dashboard
from rmqpy.console.guard import refusal
from rmqpy.server import Standalone

HOME = {"host": "127.0.0.1:8082"}
READY = {"x-rmqpy-console": "change", "content-type": "application/json"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, None),
        ("GET", {"origin": "http://127.0.0.1:8082", "sec-fetch-site": "same-origin"}, None),
        ("POST", READY, None),
        ("POST", READY | {"origin": "http://127.0.0.1:8082"}, None),
        # A name that another site has pointed at this machine.
        ("GET", {"host": "evil.example:8082"}, 421),
        ("GET", {"host": "127.0.0.1.evil.example"}, 421),
        ("GET", {"host": "["}, 421),
        ("GET", {"host": ""}, 421),
        # Pages of other sites, with and without a form.
        ("GET", {"origin": "http://evil.example"}, 403),
        ("GET", {"sec-fetch-site": "cross-site"}, 403),
        ("POST", READY | {"origin": "null"}, 403),
        ("POST", READY | {"origin": "http://127.0.0.1:9999"}, 403),
        ("POST", READY | {"origin": "https://127.0.0.1:8082"}, 403),
        ("POST", READY | {"sec-fetch-site": "same-site"}, 403),
        ("POST", {"content-type": "application/json"}, 403),
        ("POST", READY | {"content-type": "text/plain"}, 415),
    ],
)
def test_a_request_that_another_site_may_have_sent_is_refused(
    method: str, headers: dict[str, str], status: int | None
) -> None:
    found = refusal(method, HOME | headers, host="127.0.0.1", allow_changes=True)
    assert (found and found.status) == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"origin": "http://mq.example:8082"}, None),
        # A proxy that terminates TLS.
        ({"origin": "https://mq.example:8082"}, None),
        ({"origin": "https://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_remote_console_accepts_any_host_name_but_no_other_site(
    headers: dict[str, str], status: int | None
) -> None:
    given = READY | {"host": "mq.example:8082"} | headers
    found = refusal("POST", given, host="0.0.0.0", allow_changes=True)
    assert (found and found.status) == status


def test_read_only_console_refuses_changes_with_advice(reading: Standalone) -> None:
    answer = api_of(reading.http)("/topics", method="POST", body={"topic": "made"}, headers=CHANGE)
    assert answer.status == 403
    assert "--allow-changes" in answer.json["hint"]
    assert api_of(reading.http)("/topics/made").status == 404


def test_responses_are_not_readable_by_other_sites(reading: Standalone) -> None:
    ask = api_of(reading.http)
    for answer in (ask("/topics"), ask("/nowhere"), ask("/topics/nowhere"), ask("/openapi.json")):
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    page = ask("/", api=False)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", "the body is not valid JSON"),
        (b"[" * 60_000, "the body is not valid JSON"),
        (b"[]", "the body must be a JSON object"),
        (b"{}", "topic is missing"),
        (b'{"topic": 1}', "topic must be a text, not 1"),
        (b'{"topic": "a", "queues": true}', "queues must be a whole number, not True"),
        (b'{"topic": "a", "queues": 100000}', "queues must be from 1 to 1024, not 100000"),
        (b'{"topic": "a", "color": "red"}', "unknown field color; known fields: topic, queues"),
        (b'{"topic": "a", "type": "RED"}', "type must be one of NORMAL"),
        (b'{"topic": "a b"}', "illegal characters"),
        (b'{"topic": "' + b"x" * (70_000) + b'"}', "the body has more than"),
    ],
    ids=range(11),
)
def test_malformed_change_is_refused_with_the_reason(changing: Standalone, body: bytes, error: str) -> None:
    answer = api_of(changing.http)("/topics", method="POST", body=body, headers=CHANGE)
    assert answer.status == 400
    assert error in answer.json["error"]


async def test_a_dashboard_shows_a_cluster_and_says_when_no_name_server_answers(tmp_path: Path) -> None:
    async with Dashboard(ClientConfig(namesrv="127.0.0.1:1", connect_timeout=0.5), port=0) as dashboard:
        answer = await asyncio.to_thread(api_of(dashboard.address), "/overview")
        assert answer.status == 502
        assert answer.json["kind"] == "NameServerUnreachable"
        assert "rmqpy namesrv" in answer.json["hint"]
