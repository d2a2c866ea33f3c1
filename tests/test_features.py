"""docs/features.md agrees with the code: what it names exists, and what it calls refused is refused."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqpy.cli.mq import admin as mqadmin
from rmqpy.cli.mq import servers
from rmqpy.config import broker, namesrv
from rmqpy.config.keys import LoadedConfig
from rmqpy.config.proxy import ProxyConfig
from rmqpy.errors import ConfigError
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.requests.groups import (
    GroupRetryPolicy,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
)
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from rmqpy.server import Standalone
from wire import Peer, Refusal

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "features.md"
STATES = {"works", "refused", "left out"}
REASON_WORDS_MAX = 12
#: Said of keys that no release of RocketMQ has.
UNKNOWN_KEY = re.compile(r"unknown key|is unknown and ignored")


class Row(NamedTuple):
    """A feature, its state, what follows the state, and the text of the last column."""

    group: str
    feature: str
    state: str
    detail: str
    shown: str


def rows(page: str) -> Iterator[Row]:
    group = ""
    for line in page.splitlines():
        if line.startswith("## "):
            group = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| feature "):
            feature, state, shown = (cell.strip() for cell in line.strip("|").split(" | "))
            state, _, detail = state.partition(": ")
            yield Row(group, feature, state, detail, shown)


def names(row: Row) -> list[str]:
    """What a refused row names: codes, settings, attributes of topics."""
    return re.findall(r"`([^`]+)`", row.detail)


TEXT = PAGE.read_text(encoding="utf-8")
ROWS = list(rows(TEXT))
REFUSED = sorted({name for row in ROWS if row.state == "refused" for name in names(row)})
CODES = [name for name in REFUSED if name in RequestCode.__members__]
ATTRIBUTES = [name for name in REFUSED if name.startswith("+")]
#: Names with a test of their own.
OTHERS = ["--enable-proxy", "groupRetryPolicy"]
SETTINGS = [name for name in REFUSED if name not in {*CODES, *ATTRIBUTES, *OTHERS}]


def missing(shown: str) -> Iterator[str]:
    """What a last column names and the repository does not have. `test_documents.py` follows the links."""
    for path, _, name in (entry.partition("::") for entry in re.findall(r"`([^`]+)`", shown)):
        file = ROOT / path
        if not path.startswith(("tests/", "rust/")) or not file.is_file():
            yield path
        elif name and not re.search(rf"\b(def|fn) {name}\(", file.read_text(encoding="utf-8")):
            yield f"{path}::{name}"


def complaints(row: Row) -> Iterator[str]:
    if row.state not in STATES:
        yield f"state {row.state}"
    if (row.state == "works") != (not row.detail):
        yield "a reason is missing, or not needed"
    if row.state == "left out" and len(row.detail.split()) > REASON_WORDS_MAX:
        yield "long reason"
    if row.state == "refused" and re.sub(r"`[^`]+`| ", "", row.detail):
        yield "text next to the refused names"
    if not re.search(r"`[^`]+`|\]\([^)]+\.md[^)]*\)", row.shown):
        yield "shown by nothing"
    yield from missing(row.shown)


def test_each_row_has_a_state_and_shows_it_by_something_that_exists() -> None:
    assert {row.feature: found for row in ROWS if (found := [*complaints(row)])} == {}


def test_mistakes_of_rows_are_found() -> None:
    wrong = """
## Broker
| Soon | in work | [client](client.md) |
| Silent | refused | `tests/test_features.py` |
| Vague | refused: unless `enableLmq=true` | `tests/test_features.py` |
| Gone | works | `tests/test_features.py::test_of_yesterday`, `tests/broker/test_gone.py` |
| Unshown | works | |
"""
    found = {row.feature: [*complaints(row)] for row in rows(wrong.replace("| |", "| - |"))}
    assert found == {
        "Soon": ["state in work", "a reason is missing, or not needed"],
        "Silent": ["a reason is missing, or not needed"],
        "Vague": ["text next to the refused names"],
        "Gone": ["tests/test_features.py::test_of_yesterday", "tests/broker/test_gone.py"],
        "Unshown": ["shown by nothing"],
    }


def test_rows_are_counted_at_the_top_and_listed_once() -> None:
    counts = Counter(row.state for row in ROWS)
    assert (
        f"Of {len(ROWS)} rows {counts['works']} are `works`, {counts['refused']} are `refused`, "
        f"{counts['left out']} are `left out`."
    ) in TEXT
    twice = [row for row, count in Counter((row.group, row.feature) for row in ROWS).items() if count > 1]
    assert twice == []


def test_every_command_of_mqadmin_has_a_row_with_a_star_if_the_wheel_has_it() -> None:
    listed = {
        command: bool(star)
        for row in ROWS
        if row.group == "mqadmin"
        for command, star in re.findall(r"`(\w+)`(\*?)", row.feature)
    }
    assert listed == dict.fromkeys(mqadmin.ELSEWHERE, False) | dict.fromkeys(mqadmin.SERVED, True)


def reports(key: str, value: str) -> list[str]:
    """What brokers, name servers and proxies say about a setting at their start."""
    found: list[str] = []
    for read in (broker.read, namesrv.read, ProxyConfig.read):
        try:
            loaded = read({key: value})
        except ConfigError as refused:
            found += str(refused).splitlines()
        else:
            found += loaded.warnings if isinstance(loaded, LoadedConfig) else []
    return found


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_refused_setting_is_reported_with_the_reason(setting: str) -> None:
    key, _, value = setting.partition("=")
    said = [line for line in reports(key, value) if key in line and not UNKNOWN_KEY.search(line)]
    assert said, f"{setting} is accepted in silence, or is unknown"
    assert all(re.search(rf"{re.escape(setting)}( is ignored)?: \S", line) for line in said), said


def test_settings_that_are_supported_or_unknown_are_not_taken_for_refused() -> None:
    assert [*reports("brokerPermission", "4"), *reports("noSuchKey", "1")] == [
        "brokerPermission=4 is unknown and ignored",
        "unknown key noSuchKey is ignored",
        "noSuchKey=1 is unknown and ignored",
    ]


async def test_refused_requests_are_answered_with_the_reason(server: Standalone) -> None:
    silent = {}
    async with await Peer.connect(server.broker) as peer:
        for name in CODES:
            answer = await peer.call(RequestCode[name])
            refusal = rf"{name} is not served by this broker, as \S"
            is_refused = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            if not is_refused or not re.search(refusal, answer.remark or ""):
                silent[name] = (answer.code, answer.remark)
    assert CODES
    assert silent == {}


@pytest.mark.parametrize("attribute", ATTRIBUTES)
async def test_topic_with_a_refused_attribute_is_not_created(server: Standalone, attribute: str) -> None:
    key = attribute.partition("=")[0].removeprefix("+")
    ask = UpdateAndCreateTopic(
        topic="refused", read_queue_nums=1, write_queue_nums=1, perm=6, attributes=attribute
    )
    async with await Peer.connect(server.broker) as peer:
        with pytest.raises(Refusal, match=f"{key}.* not served"):
            await peer.ask(ask)


async def test_group_with_a_retry_policy_is_not_created(server: Standalone) -> None:
    group = SubscriptionGroup(group_name="refused", group_retry_policy=GroupRetryPolicy(type="EXPONENTIAL"))
    async with await Peer.connect(server.broker) as peer:
        with pytest.raises(Refusal, match="groupRetryPolicy is not served"):
            await peer.ask(UpdateAndCreateSubscriptionGroup(body=group))


def test_broker_with_a_proxy_is_not_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["mqbroker", "--enable-proxy"])
    with pytest.raises(SystemExit, match="2"):
        servers.mqbroker()
    assert "--enable-proxy: a broker serves 5.x clients without it" in capsys.readouterr().err


def test_each_name_with_its_own_test_is_still_on_the_page() -> None:
    assert [name for name in OTHERS if name not in REFUSED] == []
