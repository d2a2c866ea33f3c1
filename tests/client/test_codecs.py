"""Codecs: values of types come back as they were, and what is not such a value is refused with its place."""

from __future__ import annotations

import dataclasses
import enum
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pytest

import rmqpy


class Colour(enum.Enum):
    RED = "red"


class Item(TypedDict):
    sku: str
    count: NotRequired[int]


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Purchase:
    id: str
    total: Decimal
    at: datetime
    colour: Colour = Colour.RED
    lines: tuple[Item, ...] = ()
    note: str | None = None
    blob: bytes = b""


ORDER = Purchase(
    "A-1", Decimal("4.50"), datetime(2026, 1, 2, tzinfo=UTC), lines=({"sku": "x", "count": 2}, {"sku": "y"})
)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Purchase, ORDER),
        (Purchase, dataclasses.replace(ORDER, note="ü", blob=b"\x00\xff")),
        (Tree, Tree("a", [Tree("b", [Tree("c")])])),
        (list[int], [1, 2]),
        (dict[str, float], {"a": 1.5}),
        (set[str], {"a"}),
        (frozenset[str], frozenset({"a"})),
        (tuple[int, str], (1, "a")),
        (int | str, "a"),
        (int | None, None),
        (Literal["a", 1], 1),
        (date, date(2026, 1, 2)),
        (time, time(3, 4)),
        (timedelta, timedelta(seconds=1.5)),
        (UUID, UUID(int=7)),
        (Any, {"a": [None, True]}),
        (bool, True),
    ],
)
def test_values_survive_json(kind: Any, value: Any) -> None:
    codec = rmqpy.JsonCodec()
    assert codec.decode(codec.encode(value), kind) == value


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (Purchase, b'{"id": "A"}', "the body lacks at, total"),
        (Tree, b'{"name": "a", "children": [{"name": 5}]}', r"children\[0\].name must be text, not 5"),
        (int, b"true", "must be an integer, not true"),
        (int, b"1.5", "must be an integer"),
        (float, b'"1"', "must be a number"),
        (Colour, b'"blue"', "is not a Colour"),
        (datetime, b'"soon"', "is not a datetime"),
        (tuple[int, str], b"[1]", "must have 2 items, not 1"),
        (int | str, b"[]", "must be an integer.*or.*must be text"),
        (Literal["a"], b'"b"', "must be one of"),
        (bytes, b'"?"', "is not a bytes"),
        (int, b"{", "not valid JSON"),
        (int, b"\xff", "not valid JSON"),
        (Any, b"[" * 100_000, "nested too deeply"),
    ],
)
def test_other_bodies_are_refused_with_the_place(kind: Any, body: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        rmqpy.JsonCodec().decode(body, kind)


def test_unknown_members_are_ignored_and_missing_ones_take_their_default() -> None:
    assert rmqpy.JsonCodec().decode(b'{"name": "a", "more": 1}', Tree) == Tree("a")


@pytest.mark.parametrize("kind", [complex, dict[int, str], rmqpy.Message, "Purchase"])
def test_types_without_a_form_in_json_are_refused_at_once(kind: Any) -> None:
    with pytest.raises(TypeError, match="cannot decode"):
        rmqpy.JsonCodec().decoder(kind)


@pytest.mark.parametrize("value", [math.nan, object(), {1: object()}])
def test_values_without_a_form_in_json_are_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        rmqpy.JsonCodec().encode(value)
