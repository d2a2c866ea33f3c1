"""`help` of the public classes: every member has a description, here and in the stub."""

import ast
import doctest
import enum
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqpy
from rmqpy import _native

STUB = Path(_native.__file__).with_name("_native.pyi")

CLASSES: dict[str, type] = {
    **{f"rmqpy.{name}": getattr(rmqpy, name) for name in rmqpy.__all__},
    **{f"rmqpy._native.{name}": getattr(_native, name) for name in dir(_native) if not name.startswith("_")},
}
CLASSES = {name: value for name, value in CLASSES.items() if isinstance(value, type)}


def members(kind: type) -> Iterator[str]:
    """Public ones that this project declares, those of bases included."""
    for base in kind.__mro__:
        if base.__module__.split(".")[0] == "rmqpy":
            yield from (name for name in vars(base) if not name.startswith("_"))


def fields(kind: type) -> set[str]:
    """Fields of a tuple or record, which the class's docstring describes."""
    return {name for base in kind.__mro__ for name in getattr(base, "__annotations__", ())}


def documented_in_stub() -> dict[tuple[str, str], str]:
    """By class and member; the class itself by an empty name."""
    found = {}
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found[node.name, ""] = ast.get_docstring(node) or ""
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                    found[node.name, part.name] = ast.get_docstring(part) or ""
    return found


IN_STUB = documented_in_stub()


@pytest.mark.parametrize("name", CLASSES)
def test_every_member_of_a_public_class_has_a_docstring_and_a_signature(name: str) -> None:
    kind = CLASSES[name]
    told = inspect.getdoc(kind) or ""
    silent = [] if told.strip() else [name]
    shapeless = []
    for member in sorted(set(members(kind))):
        value = getattr(kind, member, None)
        if member in fields(kind) and not callable(value):
            if f"`{member}`" not in told:
                silent.append(member)
        elif isinstance(value, enum.Enum):
            continue
        elif not (inspect.getdoc(value) or "").strip():
            silent.append(member)
        if callable(value):
            try:
                inspect.signature(value)
            except ValueError:
                shapeless.append(member)
    assert (silent, shapeless) == ([], [])


@pytest.mark.parametrize(("kind", "member"), IN_STUB, ids=lambda part: part or "class")
def test_stub_and_help_have_the_same_docstrings(kind: str, member: str) -> None:
    value = getattr(_native, kind)
    shown = inspect.getdoc(getattr(value, member) if member else value) or ""
    assert shown == IN_STUB[kind, member]
    assert "_native.pyi" not in shown
    assert shown.strip()


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in IN_STUB}))
def test_the_examples_of_a_native_class_hold(kind: str) -> None:
    names = {name: getattr(_native, name) for name in ("Message", "ReceivedMessage")}
    finder, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    for (of, member), text in IN_STUB.items():
        if of == kind and ">>>" in text:
            runner.run(finder.get_doctest(text, dict(names), f"{kind}.{member}", None, 0))
    assert runner.failures == 0
