"""Imports of the Python packages point down.

The packages are arranged in layers. Code may use its own package and lower layers: never a neighbour in the same layer,
never a higher one. There are no exceptions; an import that does not fit is moved, or the map below (and the one in
ARCHITECTURE.md) is changed deliberately.
"""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "python" / "rmqpy"
SPARK = ROOT / "spark" / "pyspark_rocketmq"

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
    "plugins",
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
    "plugins": _GROUND | {"message"},
    "protocol": _GROUND | {"message"},
    "remoting": _WIRE,
    "monitor": frozenset({"config"}),
    "routing": _SERVED,
    "election": _SERVED,
    "control": _SERVED | {"plugins"},
    "client": _PARTS,
    "admin": _PARTS | {"plugins"},
    "backup": _PARTS | {"control", "admin"},
    "bodies": frozenset({"errors"}),
    "tables": _PARTS | {"client", "bodies"},
    "alerts": _PARTS | {"admin"},
    "console": _SERVED | {"client", "admin", "alerts", "service"},
    "load": _PARTS | {"client", "admin"},
    "mcp": _PARTS | {"admin"},
    "logging": _PARTS | {"client"},
    "otel": _PARTS | {"client", "monitor"},
    "controller": _ROOTS,
    "proxy": _ROOTS,
    "namesrv": _ROOTS | {"controller"},
    "broker": _ROOTS,
    "server": _ROOTS | {"namesrv", "broker"},
    "testing": _ROOTS | {"namesrv", "broker", "server"},
    "contrib": _PARTS | {"client", "admin", "testing"},
    "cli": _ROOTS
    | {"backup", "bodies", "tables", "load", "mcp", "namesrv", "broker", "server", "controller", "proxy"},
    "__main__": frozenset({"cli"}),
}

_CONTROL_GROUND = frozenset({"tables", "periodic", "identity"})
_CONTROL_TABLES = _CONTROL_GROUND | {"settings", "topics", "groups", "store", "plugins"}
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
    "plugins": _CONTROL_GROUND,
    "tiered": _CONTROL_GROUND,
    "registration": _CONTROL_GROUND | {"topics"},
    "duplicates": frozenset({"identity"}),
    "clients": _CONTROL_TABLES,
    "replicas": _CONTROL_TABLES | {"schedules"},
    "election": frozenset({"replicas", "tables"}),
    "addresses": frozenset({"identity"}),
    "duties": _CONTROL_TABLES | {"clients", "schedules"},
    "standing": frozenset(),
    "statistics": _CONTROL_TABLES | {"clients", "tiered"},
    "schedules": _CONTROL_TABLES,
    "topic_deletion": _CONTROL_TABLES | {"statistics", "tiered"},
    "handlers": _CONTROL_TABLES
    | {"access", "clients", "replicas", "schedules", "standing", "statistics", "topic_deletion"}
    | {"tiered"},
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
    | {"standing", "tiered", "topic_deletion"},
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


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for root in (PYTHON, SPARK)
        for path in python_files(root).values()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent, "\n".join(silent)
