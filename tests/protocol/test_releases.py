"""Releases by number: the names of RocketMQ's list."""

import pytest

from rmqpy.protocol.releases import release


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (213, "4.0.0"),
        (214, "4.0.1-SNAPSHOT"),
        (373, "4.8.0"),
        (409, "4.9.8"),
        (412, "5.0.0-SNAPSHOT"),
        (413, "5.0.0"),
        (437, "5.1.2"),
        (513, "5.5.0"),
        (611, "5.9.9"),
    ],
)
def test_numbers_have_the_names_of_rocketmqs_list(number: int, name: str) -> None:
    assert release(number) == name


@pytest.mark.parametrize("number", [-1, 0, 137, 212, 612, 1 << 31])
def test_other_numbers_are_shown_as_they_are(number: int) -> None:
    assert release(number) == str(number)
