"""The first view of a long list costs the page that is shown, not the list."""

from collections.abc import Iterator

import pytest

import rmqpy
from apiclient import api_of
from rmqpy.console import site
from rmqpy.control.handlers import topics
from rmqpy.control.statistics.group_totals import GroupTotals
from rmqpy.server import Standalone
from rmqpy.testing import broker


@pytest.fixture(scope="module")
def quiet() -> Iterator[Standalone]:
    """A broker that makes no totals for its history."""
    with broker(httpPort=0, historyMinutes=0) as server, rmqpy.Admin(server.namesrv) as admin:
        for number in range(5):
            admin.create_topic(f"many-{number}", read_queues=number + 1, write_queues=2)
            admin.create_group(f"behind-{number}")
        yield server


def test_topics_by_name_need_the_settings_of_one_page_only(
    quiet: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = []
    page_of = topics.page_of
    monkeypatch.setattr(topics, "page_of", lambda *given: whole.append(given) or page_of(*given))
    ask = api_of(quiet.http)
    first = ask("/topics?size=2").json
    assert [(row["name"], row["read_queues"], row["brokers"]) for row in first["rows"]] == [
        ("many-0", 1, ["broker-a"]),
        ("many-1", 2, ["broker-a"]),
    ]
    assert (first["total"], whole) == (5, [])
    last = ask("/topics?size=2&sort=-name").json
    assert [(row["name"], row["write_queues"]) for row in last["rows"]] == [("many-4", 2), ("many-3", 2)]
    assert whole == []
    assert ask("/topics?size=1&sort=-read_queues").json["rows"][0]["name"] == "many-4"
    assert len(whole) == 1


def test_overview_status_and_groups_share_the_totals_of_groups(
    quiet: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "FRESH_S", 600.0)
    made = []
    lags = GroupTotals.lags
    monkeypatch.setattr(GroupTotals, "lags", lambda self, now: made.append(now) or lags(self, now))
    ask = api_of(quiet.http)
    assert ask("/overview").json["groups"] == 5
    assert ask("/status").json["lag"] == 0
    assert ask("/groups").json["total"] == 5
    assert len(made) == 1


def test_settings_of_named_topics(quiet: Standalone) -> None:
    with rmqpy.Admin(quiet.namesrv) as admin:
        found = admin.topic_summaries(["many-3", "nowhere", "many-1", "many-3"])
        assert [(each.name, each.read_queues) for each in found] == [("many-1", 2), ("many-3", 4)]
        assert admin.topic_summaries([]) == []
