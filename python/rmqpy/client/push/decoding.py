"""Decoding handlers: handlers that take values instead of messages.

Owns the wrapper. Messages that cannot be decoded become dead letters. In a batch the handler gets the decoded values;
if it fails as a whole, all messages of the batch are delivered again. Any thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

from rmqpy.client.codecs.codec import Codec
from rmqpy.client.codecs.parameters import Argument, Undecodable, arguments_of, fill
from rmqpy.client.consume_result import BatchResult, ConsumeResult
from rmqpy.client.push import failures
from rmqpy.config.arguments import check_types
from rmqpy.message import ReceivedMessage

#: Answers after which the decoded messages of a batch are done.
_IS_DONE = (None, True, ConsumeResult.SUCCESS, ConsumeResult.DISCARD)


def decoding(handler: Callable[..., Any], codec: Codec, batch_size: int) -> Callable[[Any], Any]:
    """Return a handler of messages, or of lists of them, that calls `handler` with arguments by annotation.

    Raises `TypeError` for a parameter that cannot be filled.
    """
    check_types(codec=(codec, Codec))
    sources = arguments_of(handler, codec, is_batch=batch_size > 1)
    if batch_size > 1:
        return partial(_handle_batch, handler, sources)

    @wraps(handler)
    def handle(message: ReceivedMessage) -> Any:
        return handler(**fill(sources, message))

    return handle


def _handle_batch(
    handler: Callable[..., Any], sources: dict[str, Argument], messages: Sequence[ReceivedMessage]
) -> Any:
    columns: dict[str, list[Any]] = {name: [] for name in sources}
    dead, error = [], ""
    for message in messages:
        try:
            values = fill(sources, message)
        except Undecodable as fault:
            failures.undecodable(message, fault)
            dead.append(message)
            error = str(fault)
            continue
        for name, value in values.items():
            columns[name].append(value)
    if not dead:
        return handler(**columns)
    if len(dead) == len(messages):
        return BatchResult(dead=dead, error=error)
    answer = handler(**columns)
    if inspect.isawaitable(answer):
        return _finish(answer, dead, error)
    return _combined(answer, dead, error)


async def _finish(answer: Any, dead: Sequence[ReceivedMessage], error: str) -> Any:
    return _combined(await answer, dead, error)


def _combined(answer: Any, dead: Sequence[ReceivedMessage], error: str) -> Any:
    """Add dead letters to the answer of a handler. After a failure of the whole batch they are redelivered with it."""
    if isinstance(answer, BatchResult):
        return BatchResult(answer.failed, [*answer.dead, *dead], answer.error or error)
    return BatchResult(dead=dead, error=error) if answer in _IS_DONE else answer
