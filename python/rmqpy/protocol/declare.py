"""Declarations of requests and replies in wire form.

::

    @reply
    class MaxOffset:
        offset: int

    @request(RequestCode.GET_MAX_OFFSET, needs=(topic("topic", Action.GET),))
    class GetMaxOffset(Request[MaxOffset]):
        \"\"\"The position after the last readable entry of one queue.\"\"\"

        topic: str
        queue_id: int                       # "queueId" on the wire

A server serves it with a `@handles(GetMaxOffset)` method, a client asks with `await
peer.call(GetMaxOffset(...))`, and the type checker knows that both speak of a `MaxOffset`.

The fields of a request or reply are header fields, except `body`, which is the frame's body: `bytes`
unchanged, `str` as UTF-8, anything else as JSON. The members of a `@record` are members of a JSON object;
an answer that is a record, `bytes` or `str` is a body without header fields.
Names become camelCase; `wire("clientID")` says otherwise. A field that is `None` is not sent, and one
without a default must be there. Reading is as lenient as Java: numbers and booleans in strings, names in
any case, unknown fields skipped. A name of a topic or group is a `Resource`, text that `namespaces` translates.

Pure, for any thread. Every failure to read is a `DecodeError` whose `code` is the response it deserves.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from functools import cache
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from rmqpy.errors import DecodeError
from rmqpy.protocol import access, fastjson, values
from rmqpy.protocol.codes import RequestCode, ResponseCode

#: The mark of `Resource`.
RESOURCE: Final = "resource"
#: The name of a topic or group, which clients with a namespace translate for the wire.
Resource = Annotated[str, RESOURCE]

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
RequestT = TypeVar("RequestT", bound="Request[Any]")


class Request(Generic[R_co]):
    """Base of every request; the type argument is the reply, `None` for the bare code 0."""

    __slots__ = ()
    #: Set by `@request`.
    code: ClassVar[RequestCode]
    reply: ClassVar[type]
    body_bytes_max: ClassVar[int]
    needs: ClassVar[tuple[access.Need, ...]]


class EncodedRequest(NamedTuple):
    """A request or reply in the form for the native module.

    Header fields that are absent (`None`) differ from none that are set (`{}`): Java sends `extFields` for
    the second.
    """

    ext: dict[str, str] | None
    body: bytes | None


def wire(name: str, *, default: Any = MISSING, default_factory: Callable[[], Any] | None = None) -> Any:
    """A field whose wire name is not its Python name in camelCase."""
    options: dict[str, Any] = (
        {"default": default} if default_factory is None else {"default_factory": default_factory}
    )
    return field(metadata={values.WIRE_NAME: name}, **options)


def off_wire(*, default: Any) -> Any:
    """A field that is not transmitted."""
    return field(default=default, metadata={values.OFF_WIRE: True})


#: The default limit of a request's body in bytes: the locks of 10,000 queues, or the heartbeat of a client in as many
#: groups as it may be in.
BODY_BYTES_MAX: Final = 1 << 20


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, wire, off_wire))
def request(
    code: RequestCode,
    *,
    needs: tuple[access.Need, ...] = access.UNDECLARED,
    body_bytes_max: int = BODY_BYTES_MAX,
) -> Callable[[type[RequestT]], type[RequestT]]:
    """Declare a request. The class names its reply: `class GetMaxOffset(Request[MaxOffset])`; `needs` declares the
    required access, see `access`."""

    def declared(kind: type[RequestT]) -> type[RequestT]:
        base = next(
            (
                one
                for one in getattr(kind, "__orig_bases__", ())
                if getattr(one, "__origin__", None) is Request
            ),
            None,
        )
        if base is None:
            raise TypeError(f"{kind.__name__} must derive from Request[...] and name its reply")
        made = _declared(kind)
        made.code = code
        made.reply = get_args(base)[0]
        made.body_bytes_max = body_bytes_max
        made.needs = needs
        return made

    return declared


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, wire, off_wire))
def reply(kind: type[T]) -> type[T]:
    """Declare a reply: header fields, and optionally a body.

    JSON in the body is written like fastjson, with bare integer keys. A reply with a field `is_strict: bool =
    off_wire(default=False)` chooses for each reply.
    """
    return _declared(kind)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, wire, off_wire))
def record(kind: type[T]) -> type[T]:
    """Declare a JSON object."""
    made = _declared(kind)
    _BODIES.add(made)
    return made


#: Types that are a body as a whole.
_BODIES: Final[set[type]] = {bytes, str}


#: Methods that a frozen dataclass generates as text and compiles, a millisecond for each class.
_COMPILED = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")


def _declared(kind: type[T]) -> type[T]:
    """Make `kind` a frozen dataclass with slots, whose methods are compiled when the first object is made.

    There are hundreds of declarations, and a command needs a handful of them.
    """
    kind.__init__ = _first  # type: ignore[method-assign]
    return dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(kind)


def _first(self: Any, **given: Any) -> None:
    """The `__init__` of a declaration until its first call, which makes the class a real dataclass."""
    kind = type(self)
    members = [
        (each.name, Any, field(default=each.default, default_factory=each.default_factory))
        for each in fields(kind)
    ]
    whole = make_dataclass(kind.__name__, members, frozen=True, kw_only=True)
    for name in _COMPILED:
        setattr(kind, name, whole.__dict__[name])
    kind.__init__(self, **given)


# ---- frames --------------------------------------------------------------------------------------------


def encode(message: Any) -> EncodedRequest:
    """A request or reply as header fields and body; `None` is the empty reply."""
    if message is None:
        return EncodedRequest(None, None)
    kind: type = type(message)
    form = _form(kind)
    ext = {name: _text(value) for name, value in values.write_fields(form.header, message).items()}
    body = None
    if form.body is not None:
        content = message if kind in _BODIES else getattr(message, "body", None)
        if content is not None:
            body = form.body.write(content, bool(getattr(message, "is_strict", False)))
    return EncodedRequest(ext if form.header else None, body)


def decode(kind: type[T], ext: Mapping[str, str], body: bytes | None) -> T:
    """Read a request or reply of this kind."""
    of: type = kind
    form = _form(of)
    try:
        arguments = values.read_fields(form.header, ext)
    except values.TypeMismatch as mismatch:
        raise mismatch.error() from None
    if form.body is not None:
        if body:
            arguments["body"] = form.body.read(body)
        elif not form.body.has_default:
            if form.body.empty is None:
                raise DecodeError(f"{kind.__name__} needs a body", code=ResponseCode.SYSTEM_ERROR)
            arguments["body"] = form.body.empty
    return cast(T, arguments["body"]) if of in _BODIES else kind(**arguments)


def decode_reply(ask: type[Request[T]], ext: Mapping[str, str], body: bytes | None) -> T:
    """Read the answer with code 0 to a request of this kind."""
    if ask.reply is NoneType:
        return cast(T, None)
    return cast(T, decode(ask.reply, ext, body))


def read_json(kind: type[T], text: str | bytes) -> T:
    """A declared record, or a list or map of them, from JSON text."""
    return read_tree(kind, fastjson.loads(text))


def read_tree(kind: type[T], tree: object) -> T:
    """The same from what `fastjson.loads` returned."""
    return cast(T, _read(values.rule(kind), tree, ""))


def json_tree(value: object) -> Any:
    """Convert a declared record to dictionaries, lists and scalars for `fastjson.dumps` and `pretty`."""
    return values.rule(type(value)).write(value)


def is_raw(kind: type) -> bool:
    """Whether the body of this request or reply is used unparsed."""
    body = _form(kind).body
    return body is not None and body.empty == b""


class _Body(NamedTuple):
    read: Callable[[bytes], Any]
    write: Callable[[Any, bool], bytes]
    has_default: bool
    #: The value of an empty body without a default; `None`: it must not be empty.
    empty: bytes | str | None


class _Form(NamedTuple):
    header: tuple[values.WireField, ...]
    body: _Body | None


@cache
def _form(kind: type) -> _Form:
    if kind in _BODIES:
        return _Form((), _body(kind, has_default=False))
    for one in fields(kind):
        if one.name == "body":
            has_default = one.default is not MISSING or one.default_factory is not MISSING
            return _Form(
                values.wire_fields(kind, but="body"), _body(get_type_hints(kind)["body"], has_default)
            )
    return _Form(values.wire_fields(kind), None)


def _body(annotation: Any, has_default: bool) -> _Body:
    alternatives = get_args(annotation) if NoneType in get_args(annotation) else (annotation,)
    if bytes in alternatives:
        return _Body(bytes, lambda content, strict: bytes(content), has_default, b"")
    if str in alternatives:
        return _Body(_text_body, lambda content, strict: _bytes(content), has_default, "")
    rule = values.rule(annotation)
    return _Body(
        lambda body: _read(rule, fastjson.loads(body), "body"),
        lambda content, strict: _bytes(fastjson.dumps(rule.write(content), strict=strict)),
        has_default,
        None,
    )


def _read(rule: values.Rule, tree: object, place: str) -> Any:
    try:
        return rule.read(tree)
    except values.TypeMismatch as mismatch:
        raise mismatch.inside(place).error() from None


def _text_body(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"the body is not UTF-8 at byte {error.start}", code=ResponseCode.SYSTEM_ERROR
        ) from None


def utf8(text: str) -> str:
    """Text that can be sent. A lone surrogate, which JSON may contain, becomes `?`, as in Java."""
    return text if text.isascii() else _bytes(text).decode("utf-8")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _text(value: Any) -> str:
    """One header field. Every value is text on the wire: Go refuses a frame with a number in `extFields`."""
    match value:
        case str():
            return utf8(value)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
    raise TypeError(f"a header field cannot hold {type(value).__name__}")
