"""The dialect of JSON that Java peers read and write."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqpy.errors import DecodeError
from rmqpy.protocol import fastjson

OBJECT_KEY = '{"brokerName":"b","queueId":0,"topic":"t"}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1,"b":[true,false,null]}', {"a": 1, "b": [True, False, None]}),
        ("{0:'x',1:\"y\"}", {"0": "x", "1": "y"}),
        ("{-3:1}", {"-3": 1}),
        ('{"0":"x"}', {"0": "x"}),
        (f"{{{OBJECT_KEY}:7}}", {OBJECT_KEY: 7}),
        ("{ {\"topic\" : 't' , queueId:1} : 2 }", {'{"topic":"t","queueId":1}': 2}),
        ("{code:30,}", {"code": 30}),
        ("[1,2,]", [1, 2]),
        ("/* first */ {a:1 // one\n , b:-2.5e3}", {"a": 1, "b": -2500.0}),
        ("{a:1,a:2}", {"a": 2}),
        (r"'it\'s \u0001 \x41 \/ \t'", "it's \x01 A / \t"),
        (r'{a:"\ud83d\ude00"}', {"a": "😀"}),
        ("\ufeff{a:1}", {"a": 1}),
        ("{}\n", {}),
        ('{"a":"\x01"}', {"a": "\x01"}),
        ("{订单:1}", {"订单": 1}),
    ],
)
def test_reader_accepts_what_java_accepts(text: str, expected: Any) -> None:
    assert fastjson.loads(text) == expected
    assert fastjson.loads(text.encode()) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[", "{a", "{a:", "{a:1", "{a 1}", "[1 2]", "{:1}", "{a:1}}", "tru", "'x", r"'\q'", r"'\u12'", "/*",
        "{a:--1}", "{a:1.}", "01x", b"\xff", "[" * 100, "{a:" * 100 + "1" + "}" * 100, "9" * 5000, "[" * 200_000,
    ],
)  # fmt: skip
def test_unreadable_text_is_a_decode_error(text: str | bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        fastjson.loads(text)
    assert caught.value.code == 1


@given(st.text(alphabet="{}[]:,'\"\\/*019ae-+. \nu", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(DecodeError):
        fastjson.loads(text)


@pytest.mark.parametrize(
    ("value", "loose", "strict"),
    [
        ({1: "b", 0: "a"}, '{1:"b",0:"a"}', '{"0":"a","1":"b"}'),
        ({"z": None, "b": {}, "a": []}, '{"b":{},"a":[]}', '{"a":[],"b":{}}'),
        ({fastjson.ObjectKey(OBJECT_KEY): 1}, f"{{{OBJECT_KEY}:1}}", f"{{{json.dumps(OBJECT_KEY)}:1}}"),
        ('</>"\\\t\x01订', '"</>\\"\\\\\\t\\u0001订"', '"</>\\"\\\\\\t\\u0001订"'),
        ([True, False, None, 1.5], "[true,false,null,1.5]", "[true,false,null,1.5]"),
    ],
)
def test_keys_are_bare_unless_strict_json_is_requested(value: Any, loose: str, strict: str) -> None:
    assert fastjson.dumps(value) == loose
    assert fastjson.dumps(value, strict=True) == strict


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(TREES)
def test_strict_text_is_equivalent_json(tree: Any) -> None:
    assert fastjson.loads(fastjson.dumps(tree, strict=True)) == json.loads(
        json.dumps(without_absent(tree)), strict=False
    )


def without_absent(tree: Any) -> Any:
    match tree:
        case dict():
            return {key: without_absent(value) for key, value in tree.items() if value is not None}
        case list():
            return [without_absent(value) for value in tree]
    return tree


def test_configuration_files_are_laid_out_as_java_lays_them_out() -> None:
    assert fastjson.pretty({"configTable": {"n": {"k": "v"}}}) == (
        '{\n\t"configTable":{\n\t\t"n":{\n\t\t\t"k":"v"\n\t\t}\n\t}\n}'
    )


_texts = st.text(alphabet='{}[]:,"\\/019-a 单', max_size=12)
_object_keys = st.dictionaries(_texts, _texts | st.integers(), min_size=1, max_size=2).map(
    lambda key: fastjson.ObjectKey(fastjson.dumps(key))
)
_written = st.recursive(
    _texts | st.integers() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(_texts | st.integers() | _object_keys, inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


def _with_text_keys(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {str(key): _with_text_keys(value) for key, value in tree.items()}
    return [_with_text_keys(each) for each in tree] if isinstance(tree, list) else tree


@given(_written)
def test_bare_keys_can_be_converted_for_the_standard_parser(tree: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Ours takes a second per megabyte.
        patch.setattr(fastjson, "_Reader", None)
        assert fastjson.loads(fastjson.dumps(tree)) == _with_text_keys(tree)
