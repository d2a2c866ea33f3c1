"""Phrases that plain English does without, counted against the ceilings in words.txt.

Run as a program, prints a table: the count when the check began, the ceiling, the count now, and the worst file.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "words.txt"
#: The folders and files of each part. CHANGELOG.md is history and counts for neither.
PARTS = {
    "product": ("rust/src", "rust/load", "python/rmqpy", "spark"),
    "docs": ("docs", "README.md", "ARCHITECTURE.md"),
}
SUFFIXES = {".rs", ".py", ".pyi", ".md", ".html", ".js", ".css"}
#: A line break within a sentence, with the comment marker of the next line.
_BREAK = re.compile(r"[ \t]*\n[ \t]*(?:(?://[/!]?|#:?|\*|>)[ \t]+)?")


class Phrase(NamedTuple):
    """A phrase with the number of times that it may occur."""

    part: str
    #: The counts when the check began, and the most that passes.
    before: int
    ceiling: int
    spellings: tuple[str, ...]
    instead: str

    @property
    def pattern(self) -> re.Pattern[str]:
        alternatives = "|".join(re.escape(spelling) for spelling in self.spellings)
        return re.compile(rf"\b(?:{alternatives})\b", re.IGNORECASE)


def phrases() -> list[Phrase]:
    """The lines of words.txt that have five columns."""
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        columns = [column.strip() for column in line.split("|")]
        if not line.startswith("#") and len(columns) == 5:
            part, before, ceiling, spellings, instead = columns
            found.append(Phrase(part, int(before), int(ceiling), tuple(spellings.split(", ")), instead))
    return found


#: A library in the wheel that is not part of this project.
VENDORED = "uplot.js"


@cache
def texts(part: str) -> dict[str, str]:
    """The text of each file of a part, with line breaks within sentences removed."""
    found = {}
    for name in PARTS[part]:
        top = ROOT / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.suffix in SUFFIXES and "__pycache__" not in path.parts and path.name != VENDORED:
                found[str(path.relative_to(ROOT))] = _BREAK.sub(" ", path.read_text(encoding="utf-8"))
    return found


def count(phrase: Phrase, files: dict[str, str]) -> Counter[str]:
    """How often the phrase occurs in each file that has it."""
    found = Counter({name: len(phrase.pattern.findall(text)) for name, text in files.items()})
    return +found


def worst(counts: Counter[str], most: int = 1) -> str:
    return ", ".join(f"{name} ({number})" for name, number in counts.most_common(most))


def excess(listed: Iterable[Phrase]) -> list[str]:
    """A line for each phrase that occurs more often than its ceiling allows."""
    lines = []
    for phrase in listed:
        counts = count(phrase, texts(phrase.part))
        if counts.total() > phrase.ceiling:
            lines.append(
                f"{phrase.part}: {', '.join(phrase.spellings)}: {counts.total()}, at most {phrase.ceiling}; "
                f"write: {phrase.instead}; most in {worst(counts, 3)}"
            )
    return lines


def table() -> str:
    rows = [("part", "before", "ceiling", "now", "phrase", "worst file")]
    for phrase in phrases():
        counts = count(phrase, texts(phrase.part))
        rows.append(
            (
                phrase.part,
                str(phrase.before),
                str(phrase.ceiling),
                str(counts.total()),
                ", ".join(phrase.spellings),
                worst(counts),
            )
        )
    return "\n".join(
        f"{part:<8} {before:>6} {ceiling:>7} {now:>5}  {phrase:<46} {file}".rstrip()
        for part, before, ceiling, now, phrase, file in rows
    )


if __name__ == "__main__":
    print(table())
