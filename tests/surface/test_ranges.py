"""Ranges of numbers and times in public methods: all in one table, and refused beyond."""

import asyncio
import inspect
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

import rmqpy
from rmqpy.config.arguments import RANGES, Range
from rmqpy.errors import ConfigError

#: An address without a server: refused calls contact none.
NOBODY: Final = "127.0.0.1:1"
QUEUE: Final = rmqpy.MessageQueue("orders", "broker-a", 0)

#: Values that the library creates, and classes that users implement.
_NOT_CALLED: Final = {
    *("ConsumerStats", "SendAttempt", "SendResult", "MessageQueue", "OffsetStore", "QueueRange", "Catalog"),
    *("ReceivedMessage", "Message", "SendFuture", "TopicRead"),
}
#: Arguments before the number.
_BEFORE: Final[dict[str, tuple[Any, ...]]] = {
    "PullConsumer": ("g", NOBODY),
    "AsyncPullConsumer": ("g", NOBODY),
    "PushConsumer": ("g", NOBODY),
    "AsyncPushConsumer": ("g", NOBODY),
    "SimpleConsumer": ("g", NOBODY),
    "AsyncSimpleConsumer": ("g", NOBODY),
    "extend": (None,),
    "nack": (None,),
    "Producer": (NOBODY,),
    "AsyncProducer": (NOBODY,),
    "Admin": (NOBODY,),
    "AsyncAdmin": (NOBODY,),
    "send": ("orders", b"x"),
    "submit": ("orders", b"x"),
    "request": ("orders", b"x"),
    "submit_request": ("orders", b"x"),
    "send_batch": ([rmqpy.Message("orders", b"x")],),
    "recall": ("orders", "handle"),
    "submit_rows": ({},),
    "seek": (QUEUE,),
    "reply": (None, b"x"),
}
#: Methods whose `timeout` must be positive: without time nothing is sent.
_SENDS: Final = {"send", "submit", "send_batch", "request", "submit_request", "recall"}


def _numbers() -> Iterator[tuple[str, str, str]]:
    """Class, method and parameter of each number or time."""
    for name in sorted(set(rmqpy.__all__) - _NOT_CALLED):
        found = getattr(rmqpy, name)
        if not inspect.isclass(found) or issubclass(found, BaseException):
            continue
        for method, function in inspect.getmembers(found, callable):
            if method.startswith("_") and method != "__init__":
                continue
            try:
                parameters = inspect.signature(function).parameters.values()
            except (ValueError, TypeError):
                continue
            for each in parameters:
                words = set(re.findall(r"\w+", str(each.annotation)))
                if words & {"int", "float", "timedelta", "Place"} and not words & {
                    "Mapping",
                    "dict",
                    "Callable",
                }:
                    yield name, method, each.name


NUMBERS: Final = [each for each in _numbers() if each[2] != "delay"]


def _row(method: str, parameter: str) -> Range:
    return RANGES["send_timeout" if parameter == "timeout" and method in _SENDS else parameter]


def _outside(found: Range) -> list[float]:
    below = found.low if found.is_above else found.low - 1
    above = [] if math.isinf(found.high) else [int(found.high) * 2]
    return [below, *above, *([math.nan] if math.isinf(found.high) else [])]


async def _call(kind: str, method: str, parameter: str, value: float) -> None:
    """Pass one value where nothing is running."""
    if method == "__init__":
        made = getattr(rmqpy, kind)(*_BEFORE.get(kind, ()), **{parameter: value})
    else:
        made = getattr(rmqpy, kind)(*_BEFORE.get(kind, ()))
        try:
            result = getattr(made, method)(*_BEFORE.get(method, ()), **{parameter: value})
            if inspect.isawaitable(result):
                await result
            elif inspect.isgenerator(result):
                next(result)
        finally:
            closed = made.close() if hasattr(made, "close") else None
            if inspect.isawaitable(closed):
                await closed


def test_the_table_has_each_number_that_a_public_method_takes() -> None:
    assert len(NUMBERS) > 80
    assert not {parameter for _, _, parameter in NUMBERS} - RANGES.keys()
    options = (
        set(inspect.get_annotations(rmqpy.client.pull.ranges.RangeOptions, eval_str=True)) & RANGES.keys()
    )
    assert options == {"batch_rows", "batch_bytes", "pull_messages", "pull_timeout", "retries"}


@pytest.mark.parametrize(("kind", "method", "parameter"), NUMBERS)
def test_a_number_out_of_range_is_refused_by_its_name(kind: str, method: str, parameter: str) -> None:
    for value in _outside(_row(method, parameter)):
        with pytest.raises((ConfigError, ValueError, TypeError), match=rf"{parameter}|offset") as refused:
            asyncio.run(_call(kind, method, parameter, value))
        assert not isinstance(refused.value, TypeError) or math.isnan(value), value


def test_ends_of_a_range_are_accepted() -> None:
    for name, found in RANGES.items():
        if not found.is_above:
            assert found.fault(found.low) is None, name
        assert found.fault(found.high) is None, name


@pytest.mark.parametrize("level", [0, -1, 65, 99])
def test_a_delay_level_that_no_broker_has_is_refused(level: int) -> None:
    with pytest.raises(ValueError, match="a delay level is from 1 to 64"):
        rmqpy.Message("orders", b"x", delay_level=level)


def test_a_negative_priority_and_an_empty_reply_are_refused() -> None:
    with pytest.raises(ValueError, match="a priority must not be negative"):
        rmqpy.Message("orders", b"x", priority=-1)
    for empty in ("", b""):
        with pytest.raises(ValueError, match="the body is empty"):
            rmqpy.Reply(empty)


@pytest.mark.parametrize("name", ["batch_rows", "batch_bytes", "pull_messages", "pull_timeout"])
def test_an_option_of_a_range_read_that_is_0_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        rmqpy.read_range(QUEUE, 0, 1, NOBODY, **{name: 0})  # type: ignore[arg-type]


def test_a_negative_offset_is_not_committed() -> None:
    with (
        rmqpy.PullConsumer("g", NOBODY, auto_commit=False) as consumer,
        pytest.raises(ConfigError, match="offset must be at least 0"),
    ):
        consumer.commit({QUEUE: -1})
