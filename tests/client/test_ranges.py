"""The range read: Arrow output, and data loss."""

import gc
import json
import zlib
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.client import cluster
from rmqpy.client.pull import ranges
from rmqpy.message import MessageQueue
from rmqpy.remoting.backoff import Backoff
from wire import Frame

from .fakes import CLOSE, Broker, Network, inner, properties, record

pa = pytest.importorskip("pyarrow")

QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "FAILING", Backoff(0.001, 0.001))


@pytest.fixture
def broker(network: Network) -> Broker:
    broker = network.broker("broker-a")
    broker.log[0] = [
        record(f"body {offset}".encode(), offset=offset, props=properties(TAGS="ab"[offset % 2], KEYS="k"))
        for offset in range(100)
    ]
    return broker


@pytest.fixture
def namesrv(network: Network, broker: Broker) -> str:
    return network.name_server([broker], {"orders": 2}).address


def table(namesrv: str, begin: int, end: int, **options: Any) -> Any:
    return pa.table(rmqpy.read_range(QUEUE, begin, end, namesrv, **options))


def test_the_usual_columns_have_exactly_sparks_types(namesrv: str) -> None:
    expected = pa.schema(
        [
            ("topic", pa.string()),
            ("brokerName", pa.string()),
            ("queueId", pa.int32()),
            ("queueOffset", pa.int64()),
            ("msgId", pa.string()),
            ("tags", pa.string()),
            ("keys", pa.string()),
            ("body", pa.binary()),
            ("properties", pa.map_(pa.string(), pa.string())),
            ("flag", pa.int32()),
            ("bornTimestamp", pa.timestamp("us", tz="UTC")),
            ("storeTimestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
    found = table(namesrv, 0, 3)
    assert found.schema.equals(expected)
    assert found.schema.names == rmqpy.default_columns()
    entry = found.schema.field("properties").type
    assert (entry.key_field.name, entry.key_field.nullable) == ("key", False)
    assert (entry.item_field.name, entry.item_field.nullable) == ("value", True)
    row = found.to_pylist()[1]
    assert row["body"] == b"body 1"
    assert (row["topic"], row["brokerName"], row["queueId"], row["queueOffset"]) == (
        "orders",
        "broker-a",
        0,
        1,
    )
    assert (row["tags"], row["keys"], dict(row["properties"])) == ("b", "k", {"TAGS": "b", "KEYS": "k"})
    assert row["msgId"] == "0A00000200002A9F" + f"{1001:016X}"
    assert row["bornTimestamp"].timestamp() == 1_700_000_000


def test_every_column_supports_each_of_its_types(namesrv: str, broker: Broker) -> None:
    props = properties(TIMER_OUT_MS="1700000005000", __transactionId__="tx", TAGS="a")
    broker.log[0] = [record(b"text", props=props)]
    for name, kinds in rmqpy.column_types().items():
        for kind in kinds:
            (row,) = table(namesrv, 0, 1, columns={name: kind}).to_pylist()
            if name != "keys":
                assert row[name] is not None, (name, kind)
    (row,) = table(
        namesrv,
        0,
        1,
        columns={
            "properties": "string",
            "body": "string",
            "deliverTimestamp": "bigint",
            "bornHost": "string",
            "physicalOffset": "bigint",
        },
    ).to_pylist()
    assert json.loads(row["properties"])["TAGS"] == "a"
    assert (row["body"], row["deliverTimestamp"], row["bornHost"], row["physicalOffset"]) == (
        "text",
        1_700_000_005_000,
        "10.0.0.1:5000",
        1000,
    )


@pytest.mark.parametrize("columns", [["offset"], {"body": "int"}, []])
def test_columns_that_do_not_exist_are_refused_before_any_network_call(columns: Any) -> None:
    with pytest.raises(errors.ConfigError):
        rmqpy.read_range(QUEUE, 0, 1, "127.0.0.1:1", columns=columns)


def test_a_range_is_read_to_its_end_and_not_beyond(namesrv: str, broker: Broker) -> None:
    broker.pull_count_max = 7
    offsets = table(namesrv, 5, 60, columns=["queueOffset"]).column(0).to_pylist()
    assert offsets == list(range(5, 60))
    assert table(namesrv, 5, 5).num_rows == 0


def test_batches_respect_their_row_limit(namesrv: str, broker: Broker) -> None:
    broker.pull_count_max = 10
    sizes = [batch.num_rows for batch in rmqpy.read_range(QUEUE, 0, 95, namesrv, batch_rows=30)]
    assert sizes == [30, 30, 30, 5]
    assert len(list(rmqpy.read_range(QUEUE, 0, 95, namesrv, batch_bytes=1))) == 10


def test_several_ranges_are_read_each_in_order(namesrv: str, broker: Broker) -> None:
    broker.pull_count_max = 9
    broker.log[1] = [record(b"x", queue_id=1, offset=offset) for offset in range(50)]
    spans = [rmqpy.QueueRange(QUEUE._replace(queue_id=number), 0, 50) for number in (0, 1)]
    rows = pa.table(rmqpy.read_ranges(spans, namesrv)).select(["queueId", "queueOffset"]).to_pylist()
    for number in (0, 1):
        assert [row["queueOffset"] for row in rows if row["queueId"] == number] == list(range(50))


def test_inner_batches_and_compressed_bodies_are_decoded(namesrv: str, broker: Broker) -> None:
    broker.log[0] = [
        record(zlib.compress(b"packed"), offset=0, sys_flag=0x1),
        record(inner(b"one") + inner(b"two", properties(TAGS="t"), flag=9), offset=1, sys_flag=0xC0),
        record(b"", offset=2),
        record(b"long topic", offset=3, version=2),
    ]
    # A batch fills as many offsets as it has members.
    broker.handlers[11] = lambda ask: broker.pulled(0, 5, 0, b"".join(broker.log[0]))
    rows = table(namesrv, 0, 5, columns=["queueOffset", "body", "tags", "flag"]).to_pylist()
    assert [(row["queueOffset"], row["body"]) for row in rows] == [
        (0, b"packed"),
        (1, b"one"),
        (2, b"two"),
        (2, b""),
        (3, b"long topic"),
    ]
    assert (rows[2]["tags"], rows[2]["flag"]) == ("t", 9)


def test_range_inside_a_batch_skips_earlier_members(namesrv: str, broker: Broker) -> None:
    batch = record(b"".join(inner(str(number).encode()) for number in range(5)), offset=10, sys_flag=0xC0)
    # The broker has one record for five offsets, and sends it whole.
    broker.handlers[11] = lambda ask: broker.pulled(0, 15, 0, batch)
    found = table(namesrv, 12, 14, columns=["queueOffset", "body"]).to_pylist()
    assert found == [{"queueOffset": 12, "body": b"2"}, {"queueOffset": 13, "body": b"3"}]


def test_repeated_property_has_its_last_value(namesrv: str, broker: Broker) -> None:
    broker.log[0] = [record(b"x", props=b"a\x01first\x02b\x01x\x02a\x01last\x02")]
    (row,) = table(namesrv, 0, 1, columns=["properties"]).to_pylist()
    assert row["properties"] == [("b", "x"), ("a", "last")]


def test_a_body_that_cannot_be_decoded_is_named(namesrv: str, broker: Broker) -> None:
    broker.log[0][3] = record(b"not zlib", offset=3, sys_flag=0x1)
    with pytest.raises(errors.DecodeError, match=r"offset 3.*orders.*broker-a"):
        list(rmqpy.read_range(QUEUE, 0, 10, namesrv))


def test_undecodable_text_body_fails_or_is_null_as_configured(namesrv: str, broker: Broker) -> None:
    broker.log[0][1] = record(b"\xff", offset=1)
    with pytest.raises(errors.DecodeError, match="offset 1 is not UTF-8"):
        list(rmqpy.read_range(QUEUE, 0, 2, namesrv, columns={"body": "string"}))
    found = table(namesrv, 0, 2, columns={"body": "string"}, bad_text="null")
    assert found.column(0).to_pylist() == ["body 0", None]


def test_filtered_messages_are_not_data_loss(namesrv: str) -> None:
    found = table(namesrv, 0, 100, columns=["tags"], tags="a")
    assert found.column(0).to_pylist() == ["a"] * 50


# ---- losses --------------------------------------------------------------------------------------------


def _retention(broker: Broker) -> None:
    broker.begin, broker.log[0] = 40, broker.log[0][40:]


def _truncated(broker: Broker) -> None:
    del broker.log[0][30:]


def _made_anew(broker: Broker) -> None:
    broker.log[0].clear()


@pytest.mark.parametrize(
    ("disaster", "begin", "end", "left"),
    [
        (_retention, 10, 60, range(40, 60)),
        (_retention, 10, 20, range(0)),
        (_truncated, 10, 60, range(10, 30)),
        (_truncated, 50, 60, range(0)),
        (_made_anew, 10, 60, range(0)),
    ],
)
def test_deleted_messages_fail_the_read_or_are_skipped(
    namesrv: str, broker: Broker, disaster: Any, begin: int, end: int, left: range
) -> None:
    disaster(broker)
    with pytest.raises(errors.DataLoss, match=r"asked for .* the broker holds") as caught:
        list(rmqpy.read_range(QUEUE, begin, end, namesrv))
    assert (caught.value.topic, caught.value.broker) == ("orders", "broker-a")
    found = table(namesrv, begin, end, columns=["queueOffset"], fail_on_data_loss=False)
    assert found.column(0).to_pylist() == list(left)


def test_messages_not_yet_visible_are_not_data_loss(namesrv: str, broker: Broker) -> None:
    blinks = iter([19, 19])
    broker.handlers[11] = lambda ask: (
        broker.pulled(code, 0, 0) if (code := next(blinks, 0)) else broker.pull(ask)
    )
    assert table(namesrv, 0, 100).num_rows == 100


def test_lost_connection_is_retried_and_refusal_is_final(namesrv: str, broker: Broker) -> None:
    falls = iter([CLOSE, CLOSE])
    broker.handlers[11] = lambda ask: next(falls, None) or broker.pull(ask)
    assert table(namesrv, 0, 100).num_rows == 100
    broker.handlers[11] = lambda ask: Frame(16, remark="no permission")
    with pytest.raises(errors.AuthError):
        list(rmqpy.read_range(QUEUE, 0, 100, namesrv))


def test_an_error_reaches_an_arrow_consumer(namesrv: str, broker: Broker) -> None:
    broker.handlers[11] = lambda ask: Frame(16, remark="no permission")
    with pytest.raises(Exception, match="no permission"):
        pa.table(rmqpy.read_range(QUEUE, 0, 100, namesrv))


def test_a_read_can_end_early(namesrv: str, broker: Broker) -> None:
    broker.pull_count_max = 10
    with rmqpy.read_range(QUEUE, 0, 100, namesrv, batch_rows=10) as batches:
        assert next(batches).num_rows == 10
    assert list(batches) == []


@pytest.mark.parametrize(("begin", "end"), [(-1, 5), (5, 4)])
def test_a_range_backwards_is_refused(begin: int, end: int) -> None:
    with pytest.raises(ValueError, match="0 <= begin <= end"):
        rmqpy.read_range(QUEUE, begin, end, "127.0.0.1:1")


def test_connection_in_use_outlives_other_reads(network: Network, broker: Broker) -> None:
    broker.pull_count_max = 10
    servers = network.name_server([broker], {"orders": 1})
    configs = [rmqpy.ClientConfig(namesrv=servers.address, request_timeout=10 + n) for n in range(20)]
    with rmqpy.read_range(QUEUE, 0, 100, configs[0], batch_rows=10) as batches:
        rows = next(batches).num_rows
        for config in configs[1:]:
            assert sum(batch.num_rows for batch in rmqpy.read_range(QUEUE, 0, 20, config)) == 20
        assert rows + sum(batch.num_rows for batch in batches) == 100
    # The last few are kept, so the same one is returned.
    assert len(cluster._KEPT) == cluster._KEPT_MAX
    assert len(cluster._HELD) <= cluster._KEPT_MAX


def test_abandoned_read_releases_its_connection(network: Network, broker: Broker) -> None:
    servers = network.name_server([broker], {"orders": 1})
    before = len(cluster._HELD)
    for n in range(30):
        config = rmqpy.ClientConfig(namesrv=servers.address, request_timeout=10 + n)
        reader = rmqpy.read_range(QUEUE, 0, 100, config)
        if n % 2:
            next(reader)
        del reader
    gc.collect()
    assert len(cluster._HELD) <= max(before, cluster._KEPT_MAX)
