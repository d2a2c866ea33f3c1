"""Words: retired names stay away, retired phrases become fewer, headers name the content, sleeps give reasons."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from phrases import LIST, ROOT, Phrase, count, excess, phrases
from rust_imports import without_comments

#: Where the project's own text is; what tools make lies elsewhere.
FOLDERS = (
    "rust",
    "python",
    "spark",
    "tests",
    "campaigns",
    "benchmarks",
    "examples",
    "docs",
    "conf",
    "scripts",
    ".ci",
)
MADE = {"target", "__pycache__", "build", "corpus", "artifacts", "spark-warehouse", "metastore_db"}
TEXT = {".rs", ".py", ".pyi", ".md", ".toml", ".txt", ".sh", ".conf", ".service", ".mk", ""}

_DECLARED_IN_RUST = re.compile(
    r"\b(?:struct|enum|union|trait|type|fn|mod|const|static|macro_rules!)\s+(?:mut\s+)?(\w+)"
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_QUESTION = re.compile(r"(What|How|Whether|Who|Whose|Whom|Which|Where|When|Why)\b")
_HEADER = re.compile(r'(?://! |"""|# )(\w+)')
#: A header such as `Leases: what …`. The number of them may only fall.
_QUESTION_BEHIND_COLON = re.compile(
    r'(?://! |"""|# )[^:.\n]+:\s+(?:what|who|whose|how|where|when|which)\b', re.IGNORECASE
)
_MOST_QUESTIONS = 0


class Retired(NamedTuple):
    """A name that is not used, and what is said instead."""

    room: str
    name: str
    instead: str
    #: Not even in a comment.
    is_coined: bool


def retired() -> list[Retired]:
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        columns = [column.strip() for column in line.split("|")]
        if not line.startswith("#") and len(columns) == 3:
            room, name, instead = columns
            found.append(Retired(room, name.removeprefix("! "), instead, name.startswith("! ")))
    return found


def text_files() -> Iterator[Path]:
    tops = [path for path in ROOT.iterdir() if path.is_file() and path.name != "Cargo.lock"]
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    for path in sorted([*tops, *below]):
        if not MADE & set(path.relative_to(ROOT).parts) and path.suffix in TEXT:
            yield path


def declared(code: str, suffix: str) -> set[str]:
    """Names that `code` declares: types, functions, modules, constants."""
    if suffix == ".rs":
        return set(_DECLARED_IN_RUST.findall(without_comments(code)))
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def words(text: str) -> Iterator[str]:
    """Every word of a text in small letters; `SendBatch` and `send_batch` have two."""
    return (word.lower() for word in _WORD.findall(text))


def coined_in(text: str, coined: dict[str, str]) -> set[str]:
    found = {name for name in coined.values() if re.search(rf"\b{name}\b", text)}
    before = ""
    for word in words(text):
        name = coined.get(word) or coined.get(word.removesuffix("s"))
        # Data plane and control plane are terms of the field.
        if name and not (word.startswith("plane") and before in ("data", "control")):
            found.add(name)
        before = word
    return found


def source_files() -> list[Path]:
    return [path for path in text_files() if path.suffix in (".rs", ".py", ".pyi")]


def test_the_list_names_each_word_once() -> None:
    names = [word.name for word in retired()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("code", "suffix", "expected"),
    [
        ("pub(super) struct Line;\nfn talk() {}\nconst COMPANY: u8 = 1;", ".rs", {"Line", "talk", "COMPANY"}),
        ('// struct Line\nlet a = "fn talk";', ".rs", set()),
        (
            "class Line:\n    bell: int\n    def talk(self): ...\nWISH = 1",
            ".py",
            {"Line", "bell", "talk", "WISH"},
        ),
    ],
)
def test_the_finder_of_declared_names_sees(code: str, suffix: str, expected: set[str]) -> None:
    assert declared(code, suffix) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a parcel, two Parcels", {"Parcel"}),
        ("SendParcel send_parcel parcelled", {"Parcel"}),
        ("the data plane, DataPlane, dataplane, control plane", set()),
        ("a plane", {"Plane"}),
        ("checksums", set()),
        ("the sums", {"Sums"}),
        ("Linger::InCompany, good company", {"InCompany"}),
    ],
)
def test_the_finder_of_coined_words_sees(text: str, expected: set[str]) -> None:
    assert (
        coined_in(text, {"parcel": "Parcel", "plane": "Plane", "sums": "Sums", "in company": "InCompany"})
        == expected
    )


def test_no_retired_name_is_declared() -> None:
    words_by_name = {word.name: word for word in retired()}
    wrong = []
    for path in source_files():
        names = declared(path.read_text(encoding="utf-8"), path.suffix) | {path.stem}
        for name in sorted(names & words_by_name.keys()):
            word = words_by_name[name]
            if name[0].isupper() or word.room in path.relative_to(ROOT).parts:
                wrong.append(f"{path.relative_to(ROOT)}: {name} is {word.instead}")
    assert not wrong, "\n".join(wrong)


def test_coined_words_are_not_written() -> None:
    coined = {" ".join(words(word.name)): word.name for word in retired() if word.is_coined}
    suspicious = re.compile("|".join(name.replace(" ", "") for name in coined), re.IGNORECASE)
    wrong = []
    for path in text_files():
        if path == LIST or path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8")
        if not suspicious.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            wrong += [
                f"{path.relative_to(ROOT)}:{number}: {name}" for name in sorted(coined_in(line, coined))
            ]
    assert not wrong, "\n".join(wrong)


def test_headers_are_noun_phrases() -> None:
    wrong = []
    for path in source_files():
        header = _HEADER.match(path.read_text(encoding="utf-8"))
        if header and _QUESTION.fullmatch(header[1]):
            wrong.append(f"{path.relative_to(ROOT)}: {header[1]}")
    assert not wrong, "\n".join(wrong)


def test_headers_ask_no_question_behind_the_colon() -> None:
    asking = [
        str(path.relative_to(ROOT))
        for path in source_files()
        if _QUESTION_BEHIND_COLON.match(path.read_text(encoding="utf-8"))
    ]
    assert len(asking) <= _MOST_QUESTIONS, "\n".join(asking)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who waits, and whoever asks", 2),
        ("a whole", 0),
        ("nobody", 1),
    ],
)
def test_the_counter_of_phrases_sees(text: str, expected: int) -> None:
    phrase = Phrase("product", 0, 0, ("who", "whoever", "nobody"), "a client")
    assert count(phrase, {"file": text}).total() == expected


def test_no_phrase_is_above_its_ceiling() -> None:
    lines = excess(phrases())
    assert not lines, "\n".join(lines)


#: Waits for a fixed time. `asyncio.sleep(0)` waits for the turn of other tasks.
_SLEEP = re.compile(r"\b(?:(?:time|asyncio)\.sleep\((?!0[,)])|thread::sleep\()")
_REASON = re.compile(r"(?:#|//) (?!noqa)\w")


def sleeps_without_reason(text: str) -> list[int]:
    """Numbers of lines that sleep without a comment there or on the line above."""
    lines = ["", *text.splitlines()]
    return [
        number
        for number, line in enumerate(lines)
        if _SLEEP.search(line) and not any(map(_REASON.search, lines[number - 1 : number + 1]))
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time.sleep(1)", [1]),
        ("time.sleep(1)  # the rate of the load", []),
        ("# The rate of the load.\nasyncio.sleep(1)\nasyncio.sleep(1)", [3]),
        ("time.sleep(1)  # noqa: ASYNC251", [1]),
        ("await asyncio.sleep(0)", []),
        ("std::thread::sleep(PAUSE);", [1]),
        ("// Between two looks.\nstd::thread::sleep(PAUSE);", []),
    ],
)
def test_the_finder_of_sleeps_sees(text: str, expected: list[int]) -> None:
    assert sleeps_without_reason(text) == expected


def test_each_sleep_of_a_test_gives_its_reason() -> None:
    tests = [path for path in source_files() if path.relative_to(ROOT).parts[0] in ("tests", "rust")]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tests
        if path != Path(__file__)
        for number in sleeps_without_reason(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "wait for an event, or give the reason in a comment:\n" + "\n".join(wrong)
