"""Attributes of topics: a change applies whole or not at all."""

from collections.abc import Mapping

import pytest

from rmqpy.control.tables.attributes import TOPIC_ATTRIBUTES, AttributeChangeError, apply, parse


def changed(current: Mapping[str, str] | None, text: str) -> dict[str, str]:
    return apply(TOPIC_ATTRIBUTES, current, parse(text))


@pytest.mark.parametrize(
    ("current", "text", "expected"),
    [
        (None, "", {}),
        (None, "+message.type=FIFO", {"message.type": "FIFO"}),
        ({"message.type": "FIFO"}, "+message.type=NORMAL", {"message.type": "NORMAL"}),
        ({"message.type": "FIFO"}, "-message.type", {}),
        ({"queue.type": "SimpleCQ"}, "+queue.type=SimpleCQ", {"queue.type": "SimpleCQ"}),
        ({}, "+reserve.time=-1, +message.type=DELAY", {"reserve.time": "-1", "message.type": "DELAY"}),
    ],
)
def test_a_change_is_applied(current: Mapping[str, str] | None, text: str, expected: dict[str, str]) -> None:
    assert changed(current, text) == expected


@pytest.mark.parametrize(
    ("current", "text", "reason"),
    [
        (None, "-message.type", "while creating"),
        (None, "message.type=FIFO", "sign"),
        (None, "+unknown=1", "unsupported"),
        (None, "+message.type=ODD", "must be one of"),
        ({}, "+reserve.time=-2", "from -1"),
        ({}, "+reserve.time=soon", "whole number"),
        ({}, "-message.type", "nonexistent"),
        ({}, "+message.type=FIFO,+message.type=DELAY", "duplication"),
        ({"queue.type": "SimpleCQ"}, "+queue.type=BatchCQ", "unchangeable"),
    ],
)
def test_a_bad_change_is_refused_with_its_reason(
    current: Mapping[str, str] | None, text: str, reason: str
) -> None:
    with pytest.raises(AttributeChangeError, match=reason):
        changed(current, text)
