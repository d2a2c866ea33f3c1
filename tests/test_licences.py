"""Licences in the wheel: its bill of materials names each crate, and at most one that requires a notice."""

import json
import re
import tomllib
from importlib.metadata import files
from pathlib import Path
from typing import Any

MANIFEST = Path(__file__).parent.parent / "rust" / "Cargo.toml"
#: Licences that ask for a notice at most.
PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}


def components() -> list[dict[str, Any]]:
    """Of the installed package; maturin writes them."""
    (found,) = [path for path in files("rmqpy") or () if path.match("sboms/*.cyclonedx.json")]
    return list(json.loads(found.read_text())["components"])


def is_permissive(expression: str) -> bool:
    """Return whether it allows a choice of permissive licences. An AND, if any, is outermost."""
    parts = expression.replace("/", " OR ").split(" AND ")
    return all(any(each in PERMISSIVE for each in re.split(r"\s+OR\s+", part.strip("() "))) for part in parts)


def test_every_crate_of_the_wheel_is_listed_with_a_licence_that_asks_for_a_notice_at_most() -> None:
    listed = {
        each["name"]: [entry.get("expression", "") for entry in each.get("licenses", ())]
        for each in components()
    }
    named = tomllib.loads(MANIFEST.read_text("utf-8"))["dependencies"]
    wanted = {name for name, how in named.items() if isinstance(how, str) or not how.get("optional")}
    assert len(wanted) > 20
    assert wanted <= {*listed}
    binding = {
        name: found for name, found in listed.items() if not found or not all(map(is_permissive, found))
    }
    assert binding == {}


def test_licence_is_permissive_if_a_permissive_choice_exists() -> None:
    assert is_permissive("(MIT OR Apache-2.0) AND Unicode-3.0")
    assert is_permissive("MIT OR Apache-2.0 OR LGPL-2.1-or-later")
    assert not is_permissive("MIT AND GPL-3.0")
    assert not is_permissive("GPL-3.0-only")
