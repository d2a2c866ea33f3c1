"""The syntax of broker.conf, as Java reads it."""

import pytest

from rmqpy.config import properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1\nb 2\nc\t3", {"a": "1", "b": "2", "c": "3"}),
        ("a==1", {"a": "=1"}),
        ("a", {"a": ""}),
        ("  a=1  ", {"a": "1"}),
        ("# a=1\n! b=2\n   # c=3\n\nd=4", {"d": "4"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1,\\\n    2,\\\r\n  3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\", {"a": "1"}),
        ("a=C:\\\\dir\\\\\nb=2", {"a": "C:\\dir\\", "b": "2"}),
        ("a\\ b\\=c=1", {"a b=c": "1"}),
        ("a=\\u4f60\\u597d", {"a": "你好"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=x\\ty\\nz\\q", {"a": "x\ty\nzq"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=\\\n# part of the value", {"a": "# part of the value"}),
        ("", {}),
    ],
)
def test_properties_are_parsed_like_java(text: str, expected: dict[str, str]) -> None:
    assert properties.parse(text) == expected


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(properties.PropertiesError, match=r"line 3.*hexadecimal"):
        properties.parse("a=1\n\nb=\\u12x4\n")


def test_bytes_that_are_not_utf8_are_latin1() -> None:
    assert properties.parse(properties.decode(b"a=caf\xe9")) == {"a": "café"}
    assert properties.parse(properties.decode("a=café".encode())) == {"a": "café"}


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("a=1\n# kept\nb=2\n", {"a": "9"}, "a=9\n# kept\nb=2\n"),
        ("a=1,\\\n  2\nb=3", {"a": "9", "c": "4"}, "a=9\nb=3\nc=4\n"),
        ("", {"a": "x\\y"}, "a=x\\\\y\n"),
    ],
)
def test_a_change_leaves_the_other_lines_alone(text: str, changes: dict[str, str], expected: str) -> None:
    assert properties.replace(text.encode(), changes) == expected.encode()


@pytest.mark.parametrize("value", ["", " x", "a\\b", "line\nbreak", "你好=#!", "tab\t"])
def test_written_properties_are_read_back(value: str) -> None:
    assert properties.parse(properties.line("some key", value)) == {"some key": value.strip()}
