"""`MsgspecCodec`: structs and all other types that msgspec validates, as JSON or MessagePack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import inspect

from rmqpy.client.codecs.codec import Codec


class MsgspecCodec(Codec):
    """JSON or MessagePack by msgspec: structs, dataclasses, attrs classes and the standard types.

    ::

        orders = producer.typed("orders", Order, codec=MsgspecCodec("msgpack"))
    """

    def __init__(self, form: Literal["json", "msgpack"] = "json") -> None:
        if form not in ("json", "msgpack"):
            raise ValueError(f"form must be 'json' or 'msgpack', not {form!r}")
        self._form = getattr(msgspec, form)
        self._encode: Callable[[Any], bytes] = self._form.encode

    def encode(self, value: Any) -> bytes:
        """As `Codec.encode`."""
        return self._encode(value)

    def decoder(self, kind: Any) -> Callable[[bytes], Any]:
        """As `Codec.decoder`."""
        if isinstance(inspect.type_info(kind), inspect.CustomType):
            raise TypeError(f"MsgspecCodec cannot decode {kind!r}: use a Struct or a dataclass")
        decode = self._form.Decoder(kind).decode

        def decoded(body: bytes) -> Any:
            try:
                return decode(body)
            except msgspec.DecodeError as error:
                raise ValueError(str(error)) from None

        return decoded
