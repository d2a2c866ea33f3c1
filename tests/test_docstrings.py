"""Examples in docstrings."""

import doctest
import importlib
from pathlib import Path

import pytest

import rmqpy

PACKAGE = Path(rmqpy.__file__).parent


def with_examples() -> list[str]:
    """Names of the modules that show one."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            found.append(".".join(part for part in parts if part != "__init__"))
    return found


@pytest.mark.parametrize("name", with_examples())
def test_the_examples_of_a_module_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert (result.failed, result.attempted > 0) == (0, True)
