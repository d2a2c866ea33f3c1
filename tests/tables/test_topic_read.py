"""Topics as tables: Arrow streams for libraries, typed bodies, offsets that stay, SQL."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rmqpy
import rmqpy.testing
from rmqpy.errors import ConfigError, DecodeError, TopicNotFound
from rmqpy.server import Standalone

pa = pytest.importorskip("pyarrow")

COUNT = 3000


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    """A broker with `COUNT` orders, of which each hundredth is not JSON."""
    with rmqpy.testing.broker() as server:
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_topic("orders")
        send(server, COUNT)
        yield server


def send(server: Standalone, count: int) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for future in [
            producer.submit("orders", body(index), tag="paid" if index % 3 else "refunded")
            for index in range(count)
        ]:
            future.result()


def body(index: int) -> str:
    return json.dumps({"id": index, "price": index / 4}) if index % 100 else "no JSON"


def test_libraries_take_the_stream_as_it_is(server: Standalone) -> None:
    orders = rmqpy.read_topic("orders", server.namesrv, columns=["tags", "queueOffset", "body"])
    assert orders.offsets == COUNT
    assert orders.column_names == ["tags", "queueOffset", "body"]
    table = pa.table(orders)
    assert table.schema == orders.schema
    assert sorted(table.column("body").to_pylist()) == sorted(body(at).encode() for at in range(COUNT))
    # A second use reads the same messages.
    assert orders.to_arrow().num_rows == COUNT
    assert pa.schema(orders) == orders.schema


def test_polars(server: Standalone, monkeypatch: pytest.MonkeyPatch) -> None:
    # Polars sets it when it is imported.
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "")
    polars = pytest.importorskip("polars")
    orders = rmqpy.read_topic("orders", server.namesrv, columns=["tags", "body"])
    assert polars.DataFrame(orders).height == COUNT
    assert orders.to_polars().filter(polars.col("tags") == "paid").height == COUNT * 2 // 3
    typed = read(server)
    lazy = polars.scan_pyarrow_dataset(typed.dataset())
    assert lazy.filter(polars.col("tags") == "paid").select(polars.len()).collect().item() == COUNT * 2 // 3
    # The query used no body, so none was decoded.
    assert typed.counts.decoded == 0


def read(server: Standalone, **options: Any) -> rmqpy.TopicRead:
    given = {"columns": ["tags", "body", "_corrupt_body"], "body_schema": "id bigint, price double"}
    return rmqpy.read_topic("orders", server.namesrv, body_format="json", **{**given, **options})


def test_sql_decodes_only_what_it_uses(server: Standalone) -> None:
    pytest.importorskip("duckdb")
    typed = read(server)
    counted = typed.sql("select tags, count(*) from orders group by 1 order by 1").fetchall()
    assert counted == [("paid", COUNT * 2 // 3), ("refunded", COUNT // 3)]
    assert typed.counts.decoded == 0
    total = typed.sql("select sum(body.price), count(_corrupt_body) from orders").fetchall()
    assert total == [(sum(at / 4 for at in range(COUNT) if at % 100), COUNT // 100)]
    assert typed.counts.decoded > 0
    joined = "select count(*) from orders a join orders b on a.body.id = b.body.id where a.body.id < 500"
    assert typed.sql(joined).fetchall() == [(495,)]


def test_protobuf(server: Standalone, tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf")
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    (tmp_path / "protos.desc").write_bytes(
        FileDescriptorSet(
            file=[FileDescriptorProto.FromString(FileDescriptorProto.DESCRIPTOR.file.serialized_pb)]
        ).SerializeToString()
    )
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic("descriptors")
    with rmqpy.Producer(server.namesrv) as producer:
        for at in range(20):
            body = FileDescriptorProto(name=f"f{at}", dependency=["x"] * at).SerializeToString()
            producer.send("descriptors", body if at else b"\xff")
    schema = "name string, dependency array<string>"
    for given in (
        {"body_schema": schema, "descriptor_file": tmp_path / "protos.desc"},
        {"body_schema": schema, "descriptor_file": str(tmp_path / "protos.desc")},
    ):
        typed = rmqpy.read_topic(
            "descriptors",
            server.namesrv,
            body_format="protobuf",
            message_name="google.protobuf.FileDescriptorProto",
            **given,  # type: ignore[arg-type]
        )
        rows = typed.to_arrow().select(["body", "_corrupt_body"]).to_pylist()
        assert sum(len(row["body"]["dependency"]) for row in rows if row["body"]) == sum(range(20))
        assert [row["_corrupt_body"] for row in rows if not row["body"]] == [b"\xff"]
        assert (typed.counts.decoded, typed.counts.corrupt) == (19, 1)


def test_bodies_that_cannot_be_decoded(server: Standalone) -> None:
    kept = read(server).to_arrow()
    bad = [row for row in kept.to_pylist() if row["body"] is None]
    assert len(bad) == COUNT // 100
    assert {row["_corrupt_body"] for row in bad} == {b"no JSON"}
    assert kept.num_rows == COUNT
    dropping = read(server, mode="DROPMALFORMED")
    assert dropping.to_arrow().num_rows == COUNT - COUNT // 100
    assert (dropping.counts.decoded, dropping.counts.corrupt) == (COUNT - COUNT // 100, COUNT // 100)
    with pytest.raises(DecodeError, match=r"body of orders/broker-a/\d at offset \d+ is not json"):
        list(read(server, mode="FAILFAST").batches())


def test_schema_is_sampled_on_request(server: Standalone) -> None:
    typed = read(server, body_schema=None, infer_schema=True)
    assert typed.bodies.schema == "id bigint, price double"
    with pytest.raises(ConfigError, match="infer_schema=True"):
        read(server, body_schema=None)


def test_offsets_are_fixed_when_the_read_is_made() -> None:
    with rmqpy.testing.broker() as server:
        send(server, 30)
        moment = datetime.now(UTC)
        early = rmqpy.read_topic("orders", server.namesrv, columns=["body"])
        with rmqpy.Producer(server.namesrv) as producer:
            first = producer.send("orders", "later")
        assert first is not None
        assert early.to_arrow().num_rows == 30
        assert rmqpy.read_topic("orders", server.namesrv).to_arrow().num_rows == 31
        late = rmqpy.read_topic("orders", server.namesrv, columns=["body"], since=moment)
        assert late.to_arrow().column("body").to_pylist() == [b"later"]
        before = rmqpy.read_topic("orders", server.namesrv, columns=["body"], until=moment)
        assert before.to_arrow().num_rows == 30
        for since in ("1h", timedelta(hours=1)):
            assert rmqpy.read_topic("orders", server.namesrv, since=since).offsets == 31


def test_progress_ends_at_all_offsets(server: Standalone) -> None:
    shown: list[tuple[int, int]] = []
    orders = rmqpy.read_topic(
        "orders", server.namesrv, tags="refunded", progress=lambda done, total: shown.append((done, total))
    )
    assert pa.table(orders).num_rows == COUNT // 3
    assert shown[0] == (0, COUNT)
    assert shown[-1] == (COUNT, COUNT)
    assert shown == sorted(shown)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"columns": ["offset"]}, "unknown column 'offset'; known are topic,"),
        ({"columns": {"body": "int"}}, "column 'body' cannot be int"),
        ({"columns": ["_corrupt_body"]}, "unknown column"),
        ({"since": "soon"}, "since 'soon' is neither a time"),
        ({"body_format": "xml"}, "body format 'xml': use raw, json"),
        ({"body_schema": "id int"}, "needs a format"),
        ({"body_format": "json", "body_schema": "id int", "mode": "lenient"}, "use PERMISSIVE"),
    ],
)
def test_mistakes_are_named(server: Standalone, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        rmqpy.read_topic("orders", server.namesrv, **options)


def test_missing_topic(server: Standalone) -> None:
    with pytest.raises(TopicNotFound):
        rmqpy.read_topic("no-such-topic", server.namesrv)
