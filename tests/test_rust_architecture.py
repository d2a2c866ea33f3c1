"""Imports of the Rust crate point down.

The rooms of the crate are arranged in layers. Code may use its own room and lower layers: never a neighbour in the same
layer, never a higher one. There are no exceptions; an import that does not fit is moved, or the map below (and the one
in ARCHITECTURE.md) is changed deliberately.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rust_imports import circles, imports, module_of, sources_below, without_comments

ROOT = Path(__file__).resolve().parent.parent
RUST = ROOT / "rust" / "src"

#: Room of the Rust crate → the rooms it may use.
RUST_BELOW: Mapping[str, frozenset[str]] = {
    "positions": frozenset(),
    "clock": frozenset(),
    "access": frozenset(),
    "tls": frozenset(),
    "message": frozenset({"positions", "clock"}),
    "store": frozenset({"message", "positions", "clock"}),
    "remoting": frozenset({"tls", "message", "positions", "clock"}),
    "replication": frozenset({"positions"}),
    "controller": frozenset(),
    "ha": frozenset({"replication", "store", "tls", "positions"}),
    "requests": frozenset({"access", "message", "remoting"}),
    "columns": frozenset({"message", "positions"}),
    "dataplane": frozenset({"requests", "store", "remoting", "access", "message", "positions", "clock"}),
    "client": frozenset({"requests", "columns", "remoting", "tls", "access", "message"}),
    "proxy": frozenset(
        {"dataplane", "client", "requests", "remoting", "tls", "access", "message", "positions", "clock"}
    ),
    "load": frozenset({"requests", "remoting", "tls", "message", "clock"}),
    "fuzzing": frozenset(
        {
            "proxy",
            "dataplane",
            "client",
            "requests",
            "columns",
            "replication",
            "store",
            "remoting",
            "access",
            "message",
            "positions",
            "clock",
            "tls",
        }
    ),
    "bindings": frozenset(
        {
            "proxy",
            "dataplane",
            "client",
            "ha",
            "controller",
            "replication",
            "load",
            "requests",
            "columns",
            "store",
            "remoting",
            "tls",
            "access",
            "message",
            "positions",
            "clock",
        }
    ),
}

#: Room of the Rust data plane → those it may use.
DATAPLANE_BELOW: Mapping[str, frozenset[str]] = {
    "state": frozenset(),
    "waiting": frozenset({"state"}),
    "delivery": frozenset({"state"}),
    "requests": frozenset({"waiting", "delivery", "state"}),
    "service": frozenset({"requests", "waiting", "delivery", "state"}),
}

#: The only files with unsafe code; all others are under `deny(unsafe_code)`.
UNSAFE = {
    "store/disk/region.rs",
    "bindings/arrow_import.rs",
    "remoting/header/marks.rs",
    "remoting/time_slice.rs",
}


_RUST_TOKEN = re.compile(
    r"\bmod\s+(?P<mod>\w+)\s*\{"
    r"|(?P<open>\{)|(?P<close>\})"
    r"|\bcrate\s*::\s*(?P<crate>\w+|\{)"
    r"|(?P<supers>(?:\bsuper\s*::\s*)+)(?P<after>\w+|\{)"
)


def _first_names(group: str) -> Iterator[str]:
    """The names at the top level of a `use` group: `{a::b, c::{d, e}}` gives a and c."""
    depth = 0
    for token in re.finditer(r"[{},]|(?<![\w:])\w+", group):
        text = token.group()
        if text == "{":
            depth += 1
        elif text == "}":
            depth -= 1
            if depth == 0:
                return
        elif text != "," and depth == 1:
            yield text


def rust_rooms_used(code: str, module: tuple[str, ...]) -> Iterator[str]:
    """Names below the crate's root that `code`, the file of `module`, reaches by `crate::` or `super::`."""
    code = without_comments(code)
    nesting: list[str | None] = []
    for token in _RUST_TOKEN.finditer(code):
        if token["mod"]:
            nesting.append(token["mod"])
        elif token["open"]:
            nesting.append(None)
        elif token["close"]:
            if nesting:
                nesting.pop()
        else:
            target = token["crate"] or token["after"]
            if token["supers"]:
                here = len(module) + sum(name is not None for name in nesting)
                if here - token["supers"].count("super") != 0:
                    continue
            if target == "{":
                yield from _first_names(code[token.end() - 1 :])
                nesting.append(None)
            else:
                yield target


def rust_files() -> list[Path]:
    return sorted(path for path in RUST.rglob("*.rs") if path.name != "lib.rs")


@pytest.mark.parametrize(
    ("code", "module", "expected"),
    [
        ("use crate::store::Store;", "dataplane", ["store"]),
        ("use crate::{message::{self, record}, positions::QueueOffset};", "store", ["message", "positions"]),
        ("fn f() { crate::remoting::frame::split(x) }", "store", ["remoting"]),
        ("use super::super::remoting;", "store.log", ["remoting"]),
        ("mod tests { use super::super::log; }", "store.log", []),
        ("mod tests { use super::super::super::remoting; }", "store.log", ["remoting"]),
        ('// crate::store\nlet a = "crate::client";', "message", []),
        (
            "use crate::{\n  clock::Clock, // crate::store\n  message,\n};\nuse crate::store;",
            "x",
            ["clock", "message", "store"],
        ),
    ],
)
def test_the_reader_of_rust_imports_sees(code: str, module: str, expected: list[str]) -> None:
    assert list(rust_rooms_used(code, tuple(module.split(".")))) == expected


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"log": "use super::flush::Flush;", "flush": "pub struct Flush;"}, []),
        ({"log": "use super::flush::Flush;", "flush": "use super::log::Log;"}, [["flush", "log"]]),
        ({"log": "use crate::flush::Flush;", "flush": "fn f() { crate::log::open() }"}, [["flush", "log"]]),
        (
            {"a": "use crate::b::{self, B};", "b": "use crate::{c::C, x};", "c": "use super::a::A as B;"},
            [["a", "b", "c"]],
        ),
        # A façade re-exports its parts' definitions, and adds no dependency.
        ({"store": "mod log; pub use log::Log;", "store.log": "use super::Error;"}, []),
        (
            {"store": "mod log; use log::Log; struct Error;", "store.log": "use super::Error;"},
            [["store", "store.log"]],
        ),
        ({"a": "use crate::b::B;", "b": "#[cfg(test)] mod tests { use crate::a::A; }"}, []),
        ({"a": "mod b; use b::B;", "a.b": "pub(in crate::a) struct B;"}, []),
        ({"a": "use crate::b::B;", "b": "mod inner { use super::super::a::A; }"}, [["a", "b"]]),
        ({"a": "use crate::b::B;", "b": '// crate::a::A\nlet a = "crate::a";'}, []),
    ],
)
def test_the_finder_of_circles_sees(sources: dict[str, str], expected: list[list[str]]) -> None:
    graph = imports({tuple(name.split(".")): code for name, code in sources.items()})
    assert [[".".join(module) for module in circle] for circle in circles(graph)] == expected


def test_rust_modules_use_only_what_lies_below_them() -> None:
    wrong = []
    for path in rust_files():
        module = module_of(path, RUST)
        allowed = RUST_BELOW[module[0]] | {module[0]}
        for room in rust_rooms_used(path.read_text(encoding="utf-8"), module):
            if room in RUST_BELOW and room not in allowed:
                wrong.append(f"{path.relative_to(ROOT)} uses {room}")
    assert not wrong, "\n".join(wrong)


def test_no_two_files_of_the_crate_import_each_other() -> None:
    found = circles(imports(sources_below(RUST)))
    assert not found, "\n".join(", ".join("/".join(module) for module in circle) for circle in found)


def test_rooms_of_the_data_plane_use_only_what_lies_below_them() -> None:
    rooms = {path.stem for path in (RUST / "dataplane").iterdir() if path.name != "mod.rs"}
    assert rooms == DATAPLANE_BELOW.keys()
    wrong = []
    for module, targets in imports(sources_below(RUST)).items():
        if module[0] != "dataplane" or len(module) == 1:
            continue
        room = module[1]
        for target in targets:
            if target[0] == "dataplane" and not set(target[1:2]) <= DATAPLANE_BELOW[room] | {room}:
                wrong.append(f"{'/'.join(module)} uses {'/'.join(target)}")
    assert not wrong, "\n".join(wrong)


def test_four_files_contain_unsafe_code() -> None:
    unsafe = {
        str(path.relative_to(RUST))
        for path in rust_files()
        if re.search(r"\bunsafe\b", without_comments(path.read_text(encoding="utf-8")))
    }
    assert unsafe == UNSAFE


def test_only_the_bindings_know_python() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in rust_files()
        if module_of(path, RUST)[0] != "bindings"
        and "pyo3" in without_comments(path.read_text(encoding="utf-8"))
    ]
    assert not wrong


def test_every_file_has_a_header() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in [*rust_files(), *(ROOT / "rust" / "load").rglob("*.rs")]
        if not path.read_text(encoding="utf-8").startswith("//! ")
    ]
    assert not silent, "\n".join(silent)
