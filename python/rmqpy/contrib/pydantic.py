"""`PydanticCodec`: models and all other types that Pydantic validates, as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, TypeAdapter
from pydantic_core import to_json

from rmqpy.client.codecs.codec import Codec


class PydanticCodec(Codec):
    """JSON by Pydantic: models, dataclasses, and the standard types, with their validators.

    ::

        @consumer.on("orders", codec=PydanticCodec())
        def handle(order: Order) -> None: ...
    """

    def encode(self, value: Any) -> bytes:
        """As `Codec.encode`."""
        return to_json(value)

    def decoder(self, kind: Any) -> Callable[[bytes], Any]:
        """As `Codec.decoder`."""
        try:
            # Its errors are of type `ValueError`.
            return TypeAdapter(kind).validate_json
        except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema) as error:
            raise TypeError(f"PydanticCodec cannot decode {kind!r}: {error}") from None
