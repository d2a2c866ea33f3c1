"""Parameters of handlers: arguments by annotation, from a message and its decoded body.

Owns the rules. Annotations are read once, when a handler is registered. Pure; any thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from rmqpy.client.codecs.codec import Codec
from rmqpy.message import ReceivedMessage

#: Returns one argument of a handler. Raises `ValueError` for a message without it.
Argument = Callable[[ReceivedMessage], Any]
_TRUTH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Property:
    """Annotates a handler's parameter that gets a property of the message: `Annotated[str, Property("currency")]`.

    `name` is the name of the property. The type is `str`, `int`, `float` or `bool`, or one of them with `None`.
    A parameter with a default gets it where the property is missing.
    """

    name: str


class Undecodable(Exception):
    """A message whose body or properties are not what its handler expects."""


def arguments_of(function: Callable[..., Any], codec: Codec, *, is_batch: bool) -> dict[str, Argument]:
    """Return the source of each parameter of a handler. With `is_batch` annotations are lists.

    Raises `TypeError` for a parameter without an annotation, or with an annotation that cannot be filled.
    """
    sources: dict[str, Argument] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        hint = _resolved(function, name, parameter.annotation)
        marks = [each for each in get_args(hint)[1:] if isinstance(each, Property)]
        is_property = get_origin(hint) is Annotated and bool(marks)
        if parameter.default is not parameter.empty and not is_property:
            # An option of the function, for its other callers.
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"parameter {name!r} of {function!r} is positional-only: handlers get keywords")
        if hint is parameter.empty:
            raise TypeError(
                f"parameter {name!r} of {function!r} needs an annotation: ReceivedMessage, the type of the body, or "
                "Annotated[str, Property(...)]"
            )
        if is_property:
            sources[name] = _property(marks[0].name, get_args(hint)[0], parameter.default, name)
            continue
        if is_batch:
            hint = _item(hint, name, function)
        sources[name] = _argument(hint, codec)
    if not sources:
        raise TypeError(f"{function!r} takes no parameter, but handlers get a message")
    return sources


def fill(sources: dict[str, Argument], message: ReceivedMessage) -> dict[str, Any]:
    """Return the arguments for a message. Raises `Undecodable`."""
    try:
        return {name: source(message) for name, source in sources.items()}
    except ValueError as error:
        raise Undecodable(f"cannot decode the message: {error}") from error


def _resolved(function: Callable[..., Any], name: str, annotation: Any) -> Any:
    """Return an annotation that may be text."""
    if not isinstance(annotation, str):
        return annotation
    inner = inspect.unwrap(function)
    while hasattr(inner, "func"):
        inner = inner.func
    if not hasattr(inner, "__globals__"):
        inner = getattr(inner, "__func__", None) or type(inner).__call__
    closure = inspect.getclosurevars(inner).nonlocals if hasattr(inner, "__code__") else {}
    try:
        only = SimpleNamespace(__annotations__={name: annotation})
        return get_type_hints(only, getattr(inner, "__globals__", {}), dict(closure), include_extras=True)[
            name
        ]
    except NameError as error:
        raise TypeError(
            f"the annotation {annotation!r} of parameter {name!r} cannot be read: {error}; define the type in the "
            "module of the handler, outside TYPE_CHECKING"
        ) from None


def _item(hint: Any, name: str, function: Callable[..., Any]) -> Any:
    if hint is list:
        return ReceivedMessage
    if get_origin(hint) in (list, Sequence) and get_args(hint):
        return get_args(hint)[0]
    raise TypeError(f"parameter {name!r} of {function!r} must be a list, because batch_size is more than 1")


def _argument(hint: Any, codec: Codec) -> Argument:
    if hint is ReceivedMessage:
        return lambda message: message
    if hint is bytes:
        return lambda message: message.body
    if hint is str:
        return lambda message: message.text()
    decode = codec.decoder(hint)
    return lambda message: decode(message.body)


def _property(name: str, hint: Any, default: Any, parameter: str) -> Argument:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kind = next((each for each in kinds if each is not NoneType), str)
    if kind not in (str, int, float, bool) or len(kinds) > 2:
        raise TypeError(f"parameter {parameter!r}: a property is str, int, float or bool, not {hint!r}")
    missing = None if NoneType in kinds and default is inspect.Parameter.empty else default

    def argument(message: ReceivedMessage) -> Any:
        text = message.properties.get(name)
        if text is None:
            if missing is inspect.Parameter.empty:
                raise ValueError(f"it has no property {name!r}")
            return missing
        if kind is bool:
            if text.lower() not in _TRUTH:
                raise ValueError(f"property {name!r} must be true or false, not {text!r:.80}")
            return _TRUTH[text.lower()]
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"property {name!r} must be of type {kind.__name__}, not {text!r:.80}") from None

    return argument
