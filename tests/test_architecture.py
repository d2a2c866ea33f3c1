"""Imports point down.

The packages of this project are arranged in layers. Code may use its own package and lower layers: never a
neighbour in the same layer, never a higher one. There are no exceptions; an import that does not fit is moved,
or the map below (and the one in ARCHITECTURE.md) is changed deliberately.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from rust_imports import circles, imports, module_of, sources_below, without_comments

ROOT = Path(__file__).resolve().parent.parent
RUST = ROOT / "rust" / "src"
PYTHON = ROOT / "python" / "rmqpy"
SPARK = ROOT / "spark" / "pyspark_rocketmq"

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
    "proxy": frozenset({"dataplane", "client", "requests", "remoting", "tls", "access", "message", "clock"}),
    "load": frozenset({"requests", "remoting", "tls", "message", "clock"}),
    "fuzzing": frozenset(
        {
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

_GROUND = frozenset({"config", "errors", "findings", "clock", "_native"})
_WIRE = _GROUND | {"protocol", "message"}
_PARTS = _WIRE | {"remoting"}
_SERVED = _PARTS | {"monitor"}
_ROOTS = _SERVED | {
    "routing",
    "control",
    "client",
    "admin",
    "alerts",
    "console",
    "otel",
    "service",
    "election",
}
#: Room of the Python package → the rooms it may use. `__init__` hands out the public names of all of them.
PYTHON_BELOW: Mapping[str, frozenset[str]] = {
    "_native": frozenset(),
    "errors": frozenset(),
    "findings": frozenset(),
    "clock": frozenset(),
    "service": frozenset(),
    "config": frozenset({"errors", "findings", "_native"}),
    "message": _GROUND,
    "protocol": _GROUND | {"message"},
    "remoting": _WIRE,
    "monitor": frozenset({"config"}),
    "routing": _SERVED,
    "election": _SERVED,
    "control": _SERVED,
    "client": _PARTS,
    "admin": _PARTS,
    "bodies": frozenset({"errors"}),
    "tables": _PARTS | {"client", "bodies"},
    "alerts": _PARTS | {"admin"},
    "console": _SERVED | {"client", "admin", "alerts", "service"},
    "load": _PARTS | {"client", "admin"},
    "logging": _PARTS | {"client"},
    "otel": _PARTS | {"client", "monitor"},
    "controller": _ROOTS,
    "proxy": _ROOTS,
    "namesrv": _ROOTS | {"controller"},
    "broker": _ROOTS,
    "server": _ROOTS | {"namesrv", "broker"},
    "testing": _ROOTS | {"namesrv", "broker", "server"},
    "contrib": _PARTS | {"client", "admin", "testing"},
    "cli": _ROOTS | {"bodies", "tables", "load", "namesrv", "broker", "server", "controller", "proxy"},
    "__main__": frozenset({"cli"}),
}

_CONTROL_GROUND = frozenset({"tables", "periodic", "identity"})
_CONTROL_TABLES = _CONTROL_GROUND | {"settings", "topics", "groups", "store"}
#: Inner room, or file, of the broker's control plane → those it may use.
CONTROL_BELOW: Mapping[str, frozenset[str]] = {
    "tables": frozenset(),
    "periodic": frozenset(),
    "identity": frozenset(),
    "settings": _CONTROL_GROUND,
    "topics": _CONTROL_GROUND,
    "groups": _CONTROL_GROUND,
    "access": _CONTROL_GROUND,
    "store": _CONTROL_GROUND,
    "registration": _CONTROL_GROUND | {"topics"},
    "duplicates": frozenset({"identity"}),
    "clients": _CONTROL_TABLES,
    "replicas": _CONTROL_TABLES | {"schedules"},
    "election": frozenset({"replicas"}),
    "addresses": frozenset({"identity"}),
    "duties": _CONTROL_TABLES | {"clients", "schedules"},
    "standing": frozenset(),
    "statistics": _CONTROL_TABLES | {"clients"},
    "schedules": _CONTROL_TABLES,
    "topic_deletion": _CONTROL_TABLES | {"statistics"},
    "handlers": _CONTROL_TABLES
    | {"access", "clients", "replicas", "schedules", "standing", "statistics", "topic_deletion"},
    "startup": _CONTROL_TABLES
    | {
        "access",
        "addresses",
        "clients",
        "duties",
        "duplicates",
        "election",
        "handlers",
        "registration",
        "replicas",
        "schedules",
        "statistics",
    }
    | {"standing", "topic_deletion"},
}

#: Inner room, or file, of the Python client → those it may use. The files are its ground.
CLIENT_BELOW: Mapping[str, frozenset[str]] = {
    "codecs": frozenset(),
    "consume_result": frozenset(),
    "done_callbacks": frozenset(),
    "identity": frozenset(),
    "interceptors": frozenset(),
    "lifetime": frozenset(),
    "outcome": frozenset(),
    "reports": frozenset(),
    "routes": frozenset(),
    "observers": frozenset({"interceptors"}),
    "heartbeats": frozenset({"identity", "routes"}),
    "cluster": frozenset({"heartbeats", "routes"}),
    "trace": frozenset({"consume_result", "interceptors"}),
    "group": frozenset({"cluster", "identity", "reports", "routes"}),
    "producer": frozenset({"cluster", "codecs", "done_callbacks", "interceptors", "lifetime", "observers"})
    | {"outcome", "routes", "trace"},
    "pull": frozenset(
        {"cluster", "codecs", "group", "lifetime", "observers", "producer", "reports", "routes", "trace"}
    ),
    "push": frozenset({"cluster", "codecs", "consume_result", "group", "identity", "interceptors"})
    | {"lifetime", "observers", "outcome", "producer", "pull", "reports", "trace"},
    "simple": frozenset({"cluster", "group", "lifetime", "reports"}),
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


# --- Rust ---

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


# --- Python ---


def python_module(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def python_files(root: Path) -> dict[str, Path]:
    return {python_module(path, root): path for path in sorted(root.rglob("*.py"))}


def _typing_only(tree: ast.Module) -> set[int]:
    """The nodes that only type checkers read."""
    return {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }


def python_imports(code: str, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """The absolute names that `code` imports, `a.b` for `from a import b`, each with the time of the import: "start",
    "deferred" (inside a function) or "typing" (under TYPE_CHECKING)."""
    tree = ast.parse(code)
    typing_only, top_level = _typing_only(tree), {id(node) for node in tree.body}
    for node in ast.walk(tree):
        when = "typing" if id(node) in typing_only else "start" if id(node) in top_level else "deferred"
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, when
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                up = node.level - (1 if is_package else 0)
                base = ".".join(parts[: len(parts) - up] + ([node.module] if node.module else []))
            for alias in node.names:
                yield f"{base}.{alias.name}", when


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import a.b", [("a.b", "start")]),
        ("from . import x", [("p.x", "start")]),
        ("def f():\n from a import b", [("a.b", "deferred")]),
        ("if TYPE_CHECKING:\n from a import b", [("a.b", "typing")]),
        ("if not TYPE_CHECKING:\n from a import b", [("a.b", "deferred")]),
    ],
)
def test_the_reader_of_python_imports_sees(code: str, expected: list[tuple[str, str]]) -> None:
    assert list(python_imports(code, "p.q", False)) == expected


def imports_of(path: Path, module: str) -> list[tuple[str, str]]:
    return list(python_imports(path.read_text(encoding="utf-8"), module, path.name == "__init__.py"))


def test_python_modules_use_only_what_lies_below_them() -> None:
    wrong = []
    for module, path in python_files(PYTHON).items():
        if module == "rmqpy":
            continue
        room = module.split(".")[1]
        allowed = PYTHON_BELOW[room] | {room}
        for name, _ in imports_of(path, module):
            parts = name.split(".")
            # `from rmqpy import Producer` inside the package would go through the roof and down again.
            if parts[0] == "rmqpy" and (len(parts) < 2 or parts[1] not in allowed | {"__version__"}):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("room", "below"), [("control", CONTROL_BELOW), ("client", CLIENT_BELOW)])
def test_inner_rooms_use_what_lies_below_them(room: str, below: Mapping[str, frozenset[str]]) -> None:
    wrong = []
    for module, path in python_files(PYTHON / room).items():
        inner = module.split(".")[1] if "." in module else ""
        for name, _ in imports_of(path, f"rmqpy.{module}"):
            parts = name.split(".")
            if parts[:2] == ["rmqpy", room] and parts[2] not in below[inner] | {inner}:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("below", [CONTROL_BELOW, CLIENT_BELOW])
def test_allowed_arrows_between_inner_rooms_form_no_cycle(below: Mapping[str, frozenset[str]]) -> None:
    TopologicalSorter(below).prepare()


def test_no_python_modules_import_each_other_deferred_imports_included() -> None:
    files = python_files(PYTHON)
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        graph[module] = set()
        for name, when in imports_of(path, module):
            if when == "typing":
                continue
            target = name
            while target and target not in files:
                target = target.rpartition(".")[0]
            # Importing `package.part` runs `package/__init__` first, which alone is not a dependency.
            if target and target != module and not module.startswith(f"{target}."):
                graph[module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1]))


def test_only_the_package_itself_touches_its_native_half() -> None:
    wrong = []
    for root in (SPARK, ROOT / "examples"):
        for module, path in python_files(root).items():
            for name, _ in imports_of(path, module):
                parts = name.split(".")
                if parts[0] == "rmqpy" and any(part.startswith("_") for part in parts):
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)


PURE = ("options", "offsets", "plan", "values")


@pytest.mark.parametrize("name", PURE)
def test_the_pure_part_of_the_connector_knows_neither_spark_nor_the_network(name: str) -> None:
    path = SPARK / f"{name}.py"
    module = f"pyspark_rocketmq.{name}"
    outside = {target.split(".")[0] for target, _ in imports_of(path, module)}
    assert not outside & {"pyspark", "pyarrow", "rmqpy", "socket", "asyncio"}


# --- Both ---


def test_every_module_says_what_it_owns() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in [*rust_files(), *(ROOT / "rust" / "load").rglob("*.rs")]
        if not path.read_text(encoding="utf-8").startswith("//! ")
    ]
    for root in (PYTHON, SPARK):
        for path in python_files(root).values():
            if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))):
                silent.append(str(path.relative_to(ROOT)))
    assert not silent, "\n".join(silent)
