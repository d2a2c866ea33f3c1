"""Values that only other programs write: shown by every command for messages, in the console's rows and in columns."""

import json

import pytest

import foreign
import rmqpy
from commandline import Run
from foreign import BORN_MS, YEARS
from rmqpy._native import Columns
from rmqpy.cli.mq import admin as mqadmin
from rmqpy.console.api.message_rows import detail_of
from rmqpy.console.schema import to_json
from rmqpy.server import Standalone

TOPIC = "foreign"


@pytest.fixture(scope="module", autouse=True)
def stored(server: Standalone) -> None:
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(TOPIC, read_queues=1, write_queues=1)
    with foreign.producer(server, TOPIC) as store:
        for born in BORN_MS:
            store(
                b"\xff",
                {"KEYS": "k", "odd\u202e": "\x1b[31m"},
                born_timestamp=born,
                reconsume_times=-7,
                flag=-1,
            )


def _messages(server: Standalone) -> list[rmqpy.ReceivedMessage]:
    with rmqpy.PullConsumer("probe", server.namesrv, start_from="earliest", auto_commit=False) as consumer:
        consumer.assign(consumer.queues(TOPIC))
        found: list[rmqpy.ReceivedMessage] = []
        while len(found) < len(BORN_MS):
            found += consumer.poll(5.0)
    return found


@pytest.mark.parametrize("form", ["text", "jsonl", "json"])
def test_messages_are_printed(run: Run, form: str) -> None:
    code, out, err = run("consume", TOPIC, "-o", form)
    assert (code, err) == (0, "")
    if form == "jsonl":
        assert [int(json.loads(line)["born_at"][:4]) for line in out.splitlines()] == YEARS
    if form == "json":
        assert [int(each["born_at"][:4]) for each in json.loads(out)] == YEARS


@pytest.mark.parametrize("command", ["find", "export"])
def test_messages_are_found(run: Run, command: str, tmp_path: object) -> None:
    arguments = ["--file", f"{tmp_path}/out"] if command == "export" else ["-o", "json"]
    code, _, err = run("message", command, TOPIC, *arguments)
    assert code == 0, err


def test_a_message_is_shown(run: Run, server: Standalone) -> None:
    for message in _messages(server):
        code, out, err = run("message", "get", message.offset_message_id, "-o", "json")
        assert code == 0, err
        assert json.loads(out)["born_at"][:4] == f"{message.born_at.year:04}"


@pytest.mark.parametrize(
    "arguments", ["printMsg -t foreign", "consumeMessage -t foreign", "queryMsgByKey -t foreign -k k"]
)
def test_mqadmin_prints_them(server: Standalone, capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    assert mqadmin.run([*arguments.split(), "-n", server.namesrv]) == 0
    assert "Traceback" not in "".join(capsys.readouterr())


def test_mqadmin_prints_one(server: Standalone, capsys: pytest.CaptureFixture[str]) -> None:
    for message in _messages(server):
        assert mqadmin.run(["queryMsgById", "-i", message.offset_message_id, "-n", server.namesrv]) == 0
        assert "Born Timestamp" in capsys.readouterr().out


def test_the_console_shows_them(server: Standalone) -> None:
    shown = [to_json(detail_of(message)) for message in _messages(server)]
    assert [int(each["born_at"][:4]) for each in shown] == YEARS


def test_columns_have_the_nearest_date_or_the_number(server: Standalone) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    for kind, expected in (("timestamp", YEARS), ("bigint", BORN_MS)):
        with rmqpy.PullConsumer(
            "probe", server.namesrv, start_from="earliest", auto_commit=False
        ) as consumer:
            consumer.assign(consumer.queues(TOPIC))
            rows = pyarrow.record_batch(
                consumer.arrow(5.0, Columns([("bornTimestamp", kind), ("reconsumeTimes", None)]))
            ).to_pylist()
        found = [row["bornTimestamp"] for row in rows]
        assert [value.year for value in found] == expected if kind == "timestamp" else found == expected
        assert {row["reconsumeTimes"] for row in rows} == {-7}
