"""A short run of `make fuzz-python`."""

import pytest

from protocol.mutations import decoders, fuzz


@pytest.mark.parametrize("name", [decoder.name for decoder in decoders()])
def test_mutated_bytes_are_read_or_refused(name: str) -> None:
    (decoder,) = (decoder for decoder in decoders() if decoder.name == name)
    fuzz(decoder, 1_000, seed=7)
    assert decoder.findings == []
