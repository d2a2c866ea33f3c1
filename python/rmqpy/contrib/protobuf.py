"""`ProtobufCodec`: messages of classes that protoc generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError, EncodeError, Message

from rmqpy.client.codecs.codec import Codec


class ProtobufCodec(Codec):
    """Protobuf's binary format, without a header. The types are classes that `protoc --python_out` generates.

    ::

        orders = producer.typed("orders", orders_pb2.Order, codec=ProtobufCodec())

    Protobuf does not name the type in the body, and ignores fields that it does not know, so a message of another type
    may be decoded: use one type per topic.
    """

    def encode(self, value: Any) -> bytes:
        """As `Codec.encode`."""
        if not isinstance(value, Message):
            raise TypeError(f"a {type(value).__name__} is not a Protobuf message: {value!r:.80}")
        try:
            return bytes(value.SerializeToString())
        except EncodeError as error:
            raise ValueError(f"the message cannot be encoded: {error}") from None

    def decoder(self, kind: Any) -> Callable[[bytes], Any]:
        """As `Codec.decoder`."""
        if not (isinstance(kind, type) and issubclass(kind, Message)) or kind is Message:
            raise TypeError(f"ProtobufCodec cannot decode {kind!r}: use a class that protoc generated")
        generated: Any = kind

        def decoded(body: bytes) -> Any:
            try:
                value = generated.FromString(body)
            except DecodeError as error:
                raise ValueError(f"the body is not a {generated.DESCRIPTOR.full_name}: {error}") from None
            # Not checked by all implementations of FromString.
            if missing := value.FindInitializationErrors():
                raise ValueError(f"the body lacks {', '.join(missing)}")
            return value

        return decoded
