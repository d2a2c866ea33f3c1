"""`rmqpy sql`: topics as tables on the command line."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqpy
import rmqpy.testing
from commandline import Run, runner
from rmqpy.server import Standalone

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    """A broker with six orders, one of which is not JSON."""
    with rmqpy.testing.broker() as server:
        with rmqpy.Producer(server.namesrv) as producer:
            for index in range(6):
                text = json.dumps({"who": "ann" if index % 2 else "bob", "price": index}) if index else "x"
                producer.send("orders", text, tag="paid" if index > 1 else "refunded")
        yield server


@pytest.fixture
def run(server: Standalone, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("sql", …)`."""
    return runner(server.namesrv, monkeypatch, capfd)


def test_counts_as_table_and_csv(run: Run) -> None:
    query = "select tags, count(*) as messages from orders group by 1 order by 1"
    code, out, err = run("sql", query)
    assert (code, out.split(), err) == (0, ["TAGS", "MESSAGES", "paid", "4", "refunded", "2"], "")
    assert run("sql", query, "-o", "csv")[1] == "tags,messages\npaid,4\nrefunded,2\n"


def test_typed_bodies_and_a_note_on_those_that_are_not(run: Run) -> None:
    query = (
        "select body.who, sum(body.price) as total from orders where body is not null group by 1 order by 1"
    )
    code, out, err = run("sql", query, "--body-format", "json", "-o", "jsonl")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"who": "ann", "total": 9},
        {"who": "bob", "total": 6},
    ]
    assert err.startswith("orders: 1 of 6 bodies cannot be decoded, the first: Expecting value")
    code, out, err = run("sql", query, "--body-format", "json", "--mode", "failfast")
    assert (code, out) == (1, "")
    assert "at offset 0 is not json" in err
    assert "Traceback" not in err


def test_protobuf(run: Run, server: Standalone, tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf")
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.duration_pb2 import DESCRIPTOR, Duration

    descriptors = tmp_path / "duration.desc"
    descriptors.write_bytes(
        FileDescriptorSet(file=[FileDescriptorProto.FromString(DESCRIPTOR.serialized_pb)]).SerializeToString()
    )
    with rmqpy.Producer(server.namesrv) as producer:
        for seconds in (2, 3):
            producer.send("durations", Duration(seconds=seconds).SerializeToString())
    typed = ("--body-format", "protobuf", "--descriptor-file", str(descriptors))
    query = "select sum(body.seconds) as total from durations"
    assert run("sql", query, *typed, "-o", "csv")[1] == "total\n5\n"
    code, _, err = run("sql", query, *typed, "--message-name", "Duration")
    assert code == 2
    assert "has no message 'Duration'" in err


def test_json_output_is_one_array_of_all_rows(run: Run) -> None:
    code, out, _ = run(
        "sql", "select body, properties from orders order by queueId, queueOffset", "-o", "json"
    )
    rows = json.loads(out)
    assert (code, len(rows)) == (0, 6)
    assert {row["properties"]["TAGS"] for row in rows} == {"paid", "refunded"}
    assert json.loads(run("sql", "select 1 as one where false", "-o", "json")[1]) == []


def test_copy_to_a_file_and_a_query_of_it(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "orders.parquet"
    assert run("sql", f"copy (select tags, body from orders) to '{file}'")[0] == 0
    assert run("sql", f"select count(*) as n from '{file}'", "-o", "csv")[1] == "n\n6\n"


@pytest.mark.parametrize(
    ("query", "code", "complaint"),
    [
        ("select * from nowhere", 4, "nowhere"),
        ("selec", 2, "DuckDB refuses the query: Parser Error: syntax error"),
        ("select price from orders", 2, 'Referenced column "price" not found'),
    ],
)
def test_mistakes(run: Run, query: str, code: int, complaint: str) -> None:
    found, out, err = run("sql", query)
    assert (found, out) == (code, "")
    assert complaint in err
    assert "Traceback" not in err


def test_only_messages_of_a_time(run: Run) -> None:
    query = "select count(*) as n from orders"
    assert run("sql", query, "--since", "1h", "-o", "csv")[1] == "n\n6\n"
    assert run("sql", query, "--until", "1h", "-o", "csv")[1] == "n\n0\n"
    assert run("sql", query, "--filter", "paid", "-o", "csv")[1] == "n\n4\n"


def test_the_commands_of_the_page(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sh\n(rmqpy sql .*?)```", page, re.DOTALL)
    for line in block.replace(" sales", " orders").replace("customer", "who").splitlines():
        code, out, err = run(*shlex.split(line)[1:])
        assert (code, err.replace("orders: 1 of 6", "")[:1]) in ((0, ""), (0, " ")), line
        assert out
