"""`Codec`: the interface of all codecs. Any thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Codec(ABC):
    """Encodes values as bodies, and decodes bodies. Subclass it for a format of your own.

    ::

        class Upper(rmqpy.Codec):
            def encode(self, value):
                return value.upper().encode()

            def decoder(self, kind):
                return lambda body: kind(body.decode())
    """

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the body of a value. Raises `TypeError` or `ValueError` for a value that the format cannot express."""

    @abstractmethod
    def decoder(self, kind: Any) -> Callable[[bytes], Any]:
        """Return the function that decodes bodies as values of a type. Called once per type, so it may be slow.

        Raises `TypeError` for a type that the codec does not support. The function raises `ValueError` for a body that
        is not such a value.
        """

    def decode(self, body: bytes, kind: type[T]) -> T:
        """Return the value of one body. Raises `ValueError` if it is not one of this type, and `TypeError` for an
        unsupported type."""
        value: T = self.decoder(kind)(body)
        return value
