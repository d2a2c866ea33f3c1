"""Checks of arguments: values that a broker would accept silently are refused by the client."""

from datetime import UTC, datetime
from typing import Any

import pytest

import rmqpy
from rmqpy.client.group.checks import check_filter
from rmqpy.errors import ConfigError

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    "kind", [rmqpy.PullConsumer, rmqpy.AsyncPullConsumer, rmqpy.PushConsumer, rmqpy.AsyncPushConsumer]
)
def test_invalid_start_position_is_refused(kind: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"start_from='first' is neither 'earliest', 'latest' nor a datetime"
    ):
        kind("g", NOWHERE, start_from="first")
    for end in ("begin", "end", "earliest", "latest"):
        kind("g", NOWHERE, start_from=end)
    with pytest.raises(ConfigError, match="start_from=3 is neither"):
        kind("g", NOWHERE, start_from=3)
    kind("g", NOWHERE, start_from=datetime.now(UTC))


@pytest.mark.parametrize(
    "kind", [rmqpy.PullConsumer, rmqpy.AsyncPullConsumer, rmqpy.PushConsumer, rmqpy.AsyncPushConsumer]
)
def test_invalid_group_name_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="the group comes first, name servers behind it"):
        kind(NOWHERE)
    with pytest.raises(ConfigError, match=r"group 'my orders': .*illegal characters"):
        kind("my orders", NOWHERE)


def test_misspelt_message_field_is_named_with_the_likely_one() -> None:
    with (
        rmqpy.Producer(NOWHERE) as producer,
        pytest.raises(TypeError, match="a message has no field 'tags'; did you mean 'tag'"),
    ):
        producer.send("orders", b"x", tags="paid")  # type: ignore[call-arg]


def test_sql_in_a_tag_expression_is_refused() -> None:
    with rmqpy.PullConsumer("g", NOWHERE) as consumer:
        with pytest.raises(ConfigError, match=r"is SQL, not tags .* give it as rmqpy.sql"):
            consumer.assign([], "price > 5")
        with pytest.raises(ConfigError, match=r"is SQL, not tags .* give it as rmqpy.sql"):
            consumer.subscribe("orders", "price > 5 AND colour = 'red'")
    push = rmqpy.PushConsumer("g", NOWHERE)
    with pytest.raises(ConfigError, match=r"is SQL, not tags .* give it as rmqpy.sql"):
        push.on("orders", "price BETWEEN 1 AND 5", print)
    queue = rmqpy.MessageQueue("orders", "broker-a", 0)
    with pytest.raises(ConfigError, match=r"is SQL, not tags .* give it as rmqpy.sql"):
        rmqpy.read_range(queue, 0, 1, NOWHERE, tags="price IN (1, 2)")


@pytest.mark.parametrize(
    "tags", ["*", "", "paid", "paid || refunded", "a=1||b=2", "in stock", "android || oriole"]
)
def test_tag_expressions_are_not_mistaken_for_sql(tags: str) -> None:
    assert check_filter(tags) == tags
