"""Contents of message ids."""

from datetime import UTC, datetime, timedelta

import pytest

import rmqpy
from rmqpy.protocol import ids
from rmqpy.testing import broker

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "address", "offset"),
    [
        ("0A00000200002A9F0000000000000100", "10.0.0.2:10911", 256),
        ("0a00000200002a9f0000000000000100", "10.0.0.2:10911", 256),
        ("20010DB8000000000000000000000001000000017FFFFFFFFFFFFFFF", "[2001:db8::1]:1", (1 << 63) - 1),
    ],
)
def test_a_brokers_id_is_an_address_and_a_position(text: str, address: str, offset: int) -> None:
    assert ids.decode(text) == ids.OffsetId(address, offset)


@pytest.mark.parametrize(
    ("age", "made_at"),
    [
        (timedelta(hours=1), datetime(2026, 3, 1, 1, tzinfo=UTC)),
        # Later than now: it was created in the previous month.
        (timedelta(days=20), datetime(2026, 2, 21, tzinfo=UTC)),
    ],
)
def test_producer_id_contains_host_process_and_time(age: timedelta, made_at: datetime) -> None:
    text = f"C0A80001{77:04X}A1B2C3D4{int(age.total_seconds() * 1000):08X}{5:04X}"
    assert ids.decode(text, NOW) == ids.UniqueId("192.168.0.1", 77, made_at, 5)


@pytest.mark.parametrize("text", ["", "0A", "0A 00000200002A9F0000000000000100", "x" * 32, "0" * 34])
def test_other_text_is_not_an_id(text: str) -> None:
    assert ids.decode(text) is None


def test_ids_of_real_messages_are_classified() -> None:
    with broker() as server, rmqpy.Producer(server.namesrv) as producer:
        sent = producer.send("orders", b"x")
        place = ids.decode(sent.offset_message_id)
        assert isinstance(place, ids.OffsetId)
        assert place.address == server.broker
        unique = ids.decode(sent.message_id)
        assert isinstance(unique, ids.UniqueId)
        assert abs(unique.made_at - datetime.now(UTC)) < timedelta(days=2)
