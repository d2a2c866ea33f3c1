"""Names of topics and groups: both halves take the same ones."""

import pytest

import rmqpy
from rmqpy.cli.message import command
from rmqpy.config.broker import BrokerConfig
from rmqpy.protocol import names


def is_taken(topic: str) -> bool:
    """Whether the native half makes a message to this topic."""
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
def test_the_broker_takes_the_names_that_clients_may_send_to(topic: str) -> None:
    assert (names.topic_fault(topic) is None) == is_taken(topic)


def test_the_topic_of_traces_is_everywhere_the_same() -> None:
    assert BrokerConfig(name="broker-a").trace_topic == names.TRACE_TOPIC
    options = {parameter.name: parameter.default for parameter in command.commands["trace"].params}
    assert options["trace_topic"] == names.TRACE_TOPIC
