"""Properties of a message, as requests carry them."""

from hypothesis import given
from hypothesis import strategies as st

from rmqpy.protocol.properties import decode, encode

WORDS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), min_size=1)


@given(st.dictionaries(WORDS, WORDS))
def test_properties_survive_a_round_trip(properties: dict[str, str]) -> None:
    assert decode(encode(properties)) == properties


def test_entries_without_a_name_or_a_value_are_left_out() -> None:
    assert decode("\x01orphan\x02empty\x01\x02alone\x02 \x02a\x01b\x02") == {"a": "b"}
