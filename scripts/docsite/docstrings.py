"""Docstrings: their text as Markdown, with links to the names in it."""

import inspect
import re
from collections.abc import Mapping
from typing import Final

_NAME: Final = re.compile(r"(?<![\[`])`([A-Za-z_][\w.]*)`(?!`)")


def markdown(text: str, links: Mapping[str, str], own: str = "") -> str:
    """Return a docstring as Markdown.

    A block after `::` and an example with `>>>` become code. A public name in backticks becomes a link, except `own`,
    the name that the text documents.
    """
    out: list[str] = []
    lines = inspect.cleandoc(text).splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.rstrip().endswith("::"):
            head = line.rstrip()[:-2].rstrip()
            out += [f"{head}:"] if head else []
            block, at = _block(lines, at + 1)
            language = "text" if any("──" in line for line in block) else "python"
            out += ["", f"```{language}", *block, "```", ""]
        elif line.startswith(">>> "):
            begin = at
            while at < len(lines) and lines[at]:
                at += 1
            out += ["", "```pycon", *lines[begin:at], "```", ""]
        else:
            out.append(_linked(line, links, own))
            at += 1
    return "\n".join(out).strip()


def paragraphs(text: str) -> tuple[str, str]:
    """Return the first paragraph of a docstring, and the rest."""
    first, _, rest = inspect.cleandoc(text).partition("\n\n")
    return first, rest


def _block(lines: list[str], at: int) -> tuple[list[str], int]:
    begin = at
    while at < len(lines) and (not lines[at] or lines[at].startswith(" ")):
        at += 1
    return inspect.cleandoc("\n".join(["", *lines[begin:at]])).splitlines(), at


def _linked(line: str, links: Mapping[str, str], own: str) -> str:
    def link(match: re.Match[str]) -> str:
        name = match[1].removeprefix("rmqpy.")
        target = links.get(name) if name != own else None
        return f"[`{match[1]}`]({target})" if target else match[0]

    return _NAME.sub(link, line)
