"""Scripts of the console's pages, run by Node if the machine has it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rmqpy.console import site

NODE = shutil.which("node")
ASSETS = Path(site.__file__).parent / "assets"

pytestmark = pytest.mark.skipif(NODE is None, reason="no Node on this machine")


def outcome(scenario: str) -> Any:
    assert NODE is not None
    page = Path(__file__).parent / "page.mjs"
    done = subprocess.run(
        [NODE, page, ASSETS, scenario], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_values_of_an_unreachable_server_are_marked_unknown() -> None:
    found = outcome("gone")
    assert "answers" in found["before"]
    assert "7" in found["before"]
    assert "answers" not in found["after"]
    assert "Unknown: connecting again…" in found["after"]
    assert (found["during"], found["back"]) == (True, False)
    assert "The server of this console has not answered since" in found["lost"]
    assert "The figures on this page are" in found["lost"]
    assert "has not answered" not in found["strip"]


def test_strip_shows_problems_before_warnings_before_numbers_with_what_can_be_done() -> None:
    found = outcome("strip")
    order = ["broker-b has no master", "clock of broker-a: its clock", "1 broker takes messages", "3 pending"]
    places = [found["text"].index(each) for each in order]
    assert places == sorted(places)
    assert found["buttons"][:2] == ["Promote slave 1", "Open replicas"]
    assert found["links"][0] == "#/replicas?filter=broker-b"
    assert "#/controllers" in found["links"]


def test_dialog_closes_with_its_view() -> None:
    assert outcome("dialogs") == {"before": 1, "after": 0, "outcome": None}


def test_reset_form_proposes_a_subscribed_topic_and_offers_only_real_moves() -> None:
    assert outcome("reset") == {"proposed": "orders", "buttons": {"5": False, "0": True}}


def test_schedules_are_deleted_after_their_name_is_typed() -> None:
    found = outcome("schedules")
    for text in ("0 2 * * * Europe/Berlin", "every 60 s", "in 10 min", "active", "paused", "report"):
        assert text in found["text"], text
    assert found["labels"] == ["pause nightly", "delete nightly", "resume often", "delete often"]
    assert found["asked"] == {"title": "Delete the schedule often", "pattern": "often"}
    assert (found["before"], found["after"]) == ([], ["DELETE /api/v1/schedules/often"])
    assert not found["readOnly"]
    assert "The schedule often was deleted." in found["said"]
    assert "paused" in found["noted"]


def test_setting_that_needs_a_restart_has_no_button_and_a_changed_one_says_so() -> None:
    found = outcome("settings")
    assert found["labels"] == ["change fileReservedTime"]
    assert "needs a restart: set it in the configuration" in found["text"]
    assert "changed to 48" in found["after"]


def test_view_after_a_change_begins_with_what_was_changed() -> None:
    assert outcome("notice") == {"first": True, "next": False}


def test_jobs_page_shows_backups_and_positions_or_how_to_make_them() -> None:
    found = outcome("jobs")
    for text in (
        "None known: no run of rmqpy backup",
        "None known: every group",
        "rmqpy archive",
        "commitOffsets=true",
    ):
        assert text in found["none"], text
    for text in ("host:/backups/a", "complete", "1.0 KiB", "not complete", "lake-archive"):
        assert text in found["some"], text


def test_controllers_page_says_who_leads_and_until_when() -> None:
    found = outcome("controllers")
    assert "No broker is in controller mode" in found["none"]
    assert "No broker that answers is in controller mode" in found["away"]
    for text in ("leads", "in sync", "not in sync", "2.5 s", "missing"):
        assert text in found["led"], text
    assert "No master is elected for" not in found["led"]
    for text in ("has no leader", "No master is elected for broker-a", "No controller reports broker-b"):
        assert text in found["headless"], text


def test_charts_link_to_prometheus_if_it_is_configured() -> None:
    found = outcome("prometheus")
    assert found["none"] == []
    [link] = found["topic"]
    assert (link["target"], link["rel"]) == ("_blank", "noopener noreferrer")
    address = urlsplit(link["href"])
    assert (address.scheme, address.netloc, address.path) == ("https", "prometheus.example", "/base/graph")
    query = parse_qs(address.query)
    assert query["g0.expr"] == ['sum by (topic) (rate(rocketmq_messages_in_total{topic="or\\"ders"}[5m]))']
    assert (query["g0.range_input"], query["g0.tab"]) == (["1w"], ["0"])
    assert (
        len([each for each in parse_qs(urlsplit(found["broker"][0]["href"]).query) if ".expr" in each]) == 5
    )
    assert "javascript:" in found["refused"]
