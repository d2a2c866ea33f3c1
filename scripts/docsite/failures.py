"""Error pages: one for each exception of `rmqpy.errors`, from its docstring, its attributes and the response codes."""

import ast
import importlib
from pathlib import Path
from typing import Final

from docsite.docstrings import markdown, paragraphs
from docsite.pages import ROOT

MODULE: Final = ROOT / "python" / "rmqpy" / "errors.py"
#: Documents that docstrings name, as links from a page of the folder `errors`.
_DOCUMENTS: Final = {
    "docs/settings.md": "../settings.md",
    "docs/addresses.md": "../addresses.md",
    "docs/security.md": "../security.md",
    "docs/backup.md": "../backup.md",
    "README": "../index.md#supported-and-unsupported-features",
}


def names() -> list[str]:
    """Return the exceptions in the order of the source."""
    return [node.name for node in ast.parse(MODULE.read_text("utf-8")).body if isinstance(node, ast.ClassDef)]


def write(folder: Path) -> list[object]:
    """Write the pages below `errors/`, and return their part of the navigation."""
    errors = importlib.import_module("rmqpy.errors")
    codes = _codes()
    links = {name: f"{name}.md" for name in names()}
    (folder / "errors").mkdir()
    index = [
        "# Errors",
        "",
        "Every error that rmqpy raises on purpose is one of these. Catch `RocketMQError` for all of them.",
        "",
        "| error | meaning | retry |",
        "|---|---|---|",
    ]
    for name in names():
        cls = getattr(errors, name)
        meaning = " ".join(markdown(paragraphs(cls.__doc__)[0], {}).split())
        index.append(f"| [`{name}`]({links[name]}) | {meaning} | {'yes' if cls.retriable else ''} |")
        (folder / "errors" / f"{name}.md").write_text(
            "\n".join(_page(cls, codes.get(name, []), links)), "utf-8"
        )
    (folder / "errors" / "index.md").write_text("\n".join([*index, ""]), "utf-8")
    return ["errors/index.md", *(f"errors/{name}.md" for name in names())]


def _page(cls: type, codes: list[str], links: dict[str, str]) -> list[str]:
    meaning, todo = paragraphs(cls.__doc__ or "")
    for document, page in _DOCUMENTS.items():
        todo = todo.replace(document, f"[{document.rpartition('/')[2].removesuffix('.md')}]({page})")
    lines = [f"# {cls.__name__}", "", markdown(meaning, links, cls.__name__), ""]
    is_root = cls.__base__ is Exception
    lines += [] if is_root else ["## What to do", ""]
    lines += [markdown(todo, links, cls.__name__), ""]
    hint = getattr(cls, "hint", None)
    if hint and not is_root:
        lines += [f"The text of the error ends with this hint, or a closer one: {hint}.", ""]
    lines += ["## Facts", ""]
    bases = ", ".join(_linked(base, links) for base in cls.__mro__[1:] if base not in (object, BaseException))
    lines.append(f"- Also caught as: {bases}")
    children: list[type] = cls.__subclasses__()
    below = ", ".join(_linked(child, links) for child in children if child.__name__ in links)
    lines += [f"- More precise: {below}"] if below else []
    retry = (
        "yes: the same call may succeed later, or on another broker"
        if getattr(cls, "retriable", False)
        else "no"
    )
    lines.append(f"- `retriable`: {retry}, unless the error itself says otherwise")
    lines += [f"- Response codes: {', '.join(codes)}"] if codes else []
    return [*lines, ""]


def _linked(cls: type, links: dict[str, str]) -> str:
    name = cls.__name__
    return f"[`{name}`]({links[name]})" if name in links else f"`{name}`"


def _codes() -> dict[str, list[str]]:
    """Return the response codes that become an exception, by its name."""
    refusals = importlib.import_module("rmqpy.protocol.refusals")
    found: dict[str, list[str]] = {}
    for code, meaning in refusals._MEANINGS.items():
        found.setdefault(meaning.kind.__name__, []).append(f"{int(code)} `{code.name}`")
    return found
