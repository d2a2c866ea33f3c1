"""Names of topics and groups: both halves accept the same ones."""

import pytest

import rmqpy
from rmqpy.cli.message import command
from rmqpy.config.broker import BrokerConfig
from rmqpy.protocol import names


def is_taken(topic: str) -> bool:
    """Return whether the native module creates a message to this topic."""
    try:
        rmqpy.Message(topic, b"x")
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "topic",
    [
        *(f"a{chr(code)}" for code in range(128)),
        "",
        " ",
        "größe",
        "x" * 127,
        "x" * 128,
        names.retry_topic("g" * 120),
        names.dead_letter_topic("g" * 250),
        names.dead_letter_topic("g" * 251),
    ],
)
def test_broker_accepts_the_names_that_clients_accept(topic: str) -> None:
    assert (names.topic_fault(topic) is None) == is_taken(topic)


def test_trace_topic_is_the_same_everywhere() -> None:
    assert BrokerConfig(name="broker-a").trace_topic == names.TRACE_TOPIC
    options = {parameter.name: parameter.default for parameter in command.commands["trace"].params}
    assert options["trace_topic"] == names.TRACE_TOPIC
