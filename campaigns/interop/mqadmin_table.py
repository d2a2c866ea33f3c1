"""A table of every mqadmin command at our servers and at Apache's: `make campaign NAME=mqadmin-table`.

Writes `docs/mqadmin.md`: each command line, its exit at each side, and how the output differs. Digits count as equal,
because ports, times and rates of the two clusters differ. Fails where our output lacks a required text.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

import pytest

from interop import mqadmin, servers
from interop.clients import InteropClient, Printed, ProcessClient
from interop.mqadmin import ENDLESS, LOCAL, NOT_SERVED, REFUSED, AdminEnvironment, Command
from rmqpy.cli.mq.admin import SERVED

pytestmark = pytest.mark.timeout(600)

DOCUMENT = Path(__file__).parents[2] / "docs" / "mqadmin.md"

ENDLESS_SECONDS = 15.0
LINES_SHOWN_MAX = 2
LINE_CHARS_MAX = 90

NAMES = {
    "namesrv": "127.0.0.1:9876", "broker": "127.0.0.1:10911", "cluster": "DefaultCluster", "name": "broker-a",
    "topic": "orders", "group": "billing", "ours": "audit", "client": "CLIENT", "our_client": "CLIENT",
    "folder": "FOLDER", "id": "ID", "offset_id": "OFFSET_ID", "resent_id": "OFFSET_ID", "traced": "ID",
    "queue": "0", "offset": "0",
}  # fmt: skip
"""What stands in the document for the names of a run."""

HEAD = """# mqadmin

{apart}

Apache's command line tool, release 5.5.0, is run with each of its {commands} commands against rmqpy, and against
Apache's broker and name server of the same release. `make campaign NAME=mqadmin-table`
runs every line against both and writes this page.

`mqadmin` exits with 0 whether it got an answer or not, and with 1 if it cannot parse its command line, so only its
output counts. Differences are lines that only one side printed, ignoring digits. The 12 commands for
users and policies need access control: they work, see [security](security.md), and `tests/interop/test_access.py` runs
them. The 6 commands for [lite topics](lite-topics.md) work as well: `tests/interop/test_grpc_lite.py` runs them.

Of the {all} command lines {works} work with both; {refused} are refused by both with the same code; {unserved} are not
supported by rmqpy, of which {failing} fail with this Apache installation as well; {rest} contact no server, or run
until they are stopped.
"""

APART = (
    "This page covers Apache's Java tool, not the `mqadmin` in rmqpy's wheel "
    "([commands](commands.md#rocketmqs-own-commands)), which serves {served} of these commands "
    "without Java: {names}."
)


@dataclass(frozen=True)
class Answer:
    """Output of one side, with the names of the document, and whether it is as expected."""

    printed: Printed
    lines: frozenset[str]
    is_expected: bool


@dataclass(frozen=True)
class Row:
    """One command line and its results at both."""

    label: str
    arguments: str
    status: str
    ours: Answer
    theirs: Answer

    def text(self) -> str:
        line = f"{mqadmin.command_of(self.label)} {self.arguments.format(**NAMES)}".strip()
        cells = [f"`{line}`", _exit(self.ours.printed), self.status, _outcome(self), _differences(self)]
        return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def test_the_table_of_all_commands(
    originals: Callable[[str], Path], client_of: Callable[[str], InteropClient], tmp_path: Path
) -> None:
    tool = client_of("java-5.5.0")
    assert isinstance(tool, ProcessClient)
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(servers.rmqpy_standalone(tmp_path)),
            stack.enter_context(servers.apache(originals("apache"), tmp_path)),
        ]
        asked: list[dict[str, Answer]] = []
        for cluster in clusters:
            folder = tmp_path / ("theirs" if cluster.is_apache else "ours")
            folder.mkdir()
            with mqadmin.built(cluster, tool, folder) as environment:
                commands, answers = _everything(environment)
                asked.append(answers)
    ours, theirs = asked
    rows = [
        Row(label, commands[label].arguments, _status(label), ours[label], theirs[label])
        for label in commands
    ]
    DOCUMENT.write_text("\n".join(_document(rows, len(tool.mqadmin_names()))) + "\n")
    print(DOCUMENT.read_text())
    silent = {label: answer.printed for label, answer in ours.items() if not answer.is_expected}
    assert not silent


def _everything(environment: AdminEnvironment) -> tuple[dict[str, Command], dict[str, Answer]]:
    """Run all commands, those that work first, because they depend on each other, and return their output."""
    commands, printed = mqadmin.run_phases(environment, "5.5.0")
    unserved = {label: Command(arguments, (reason,)) for label, (arguments, reason) in NOT_SERVED.items()}
    for others in (REFUSED, LOCAL, unserved):
        commands |= others
        printed |= environment.run({label: command.arguments for label, command in others.items()})
    commands |= ENDLESS
    printed |= environment.run(
        {label: command.arguments for label, command in ENDLESS.items()}, ENDLESS_SECONDS
    )
    return commands, {
        label: Answer(
            printed[label],
            _lines(environment, printed[label]),
            not environment.missing(printed[label], command.expected),
        )
        for label, command in commands.items()
    }


def _document(rows: list[Row], commands: int) -> Iterator[str]:
    counts = Counter(row.status.partition(":")[0] for row in rows)
    unserved = [row for row in rows if row.status.startswith("not served")]
    names = ", ".join(f"`{name}`" for name in sorted(SERVED))
    yield HEAD.format(
        apart=fill(APART.format(served=len(SERVED), names=names), 120, break_on_hyphens=False),
        commands=commands,
        all=len(rows),
        works=counts["works"],
        refused=counts["refused"],
        unserved=len(unserved),
        failing=sum(_outcome(row) != "works" for row in unserved),
        rest=counts["asks no server"] + counts["runs on"],
    )
    yield "| command line (all with `-n 127.0.0.1:9876`) | exit | rmqpy | Apache | differing output |"
    yield "|---|---|---|---|---|"
    for row in sorted(rows, key=lambda row: (row.status != "works", row.status, row.label.lower())):
        yield row.text()


def _status(label: str) -> str:
    if label in NOT_SERVED:
        return f"not served: {NOT_SERVED[label][1]}"
    tables: Mapping[str, dict[str, Command]] = {
        "refused": REFUSED,
        "asks no server": LOCAL,
        "runs on": ENDLESS,
    }
    return next((status for status, table in tables.items() if label in table), "works")


def _exit(printed: Printed) -> str:
    return "ended" if printed.exit is None else str(printed.exit)


def _outcome(row: Row) -> str:
    if row.status in ("works", "runs on") and row.theirs.is_expected:
        return "works"
    printed = row.theirs.printed
    if code := re.search(r"CODE: (\d+)", printed.err + printed.out):
        return f"code {code[1]}"
    return "fails" if "Exception" in printed.err else "works"


def _differences(row: Row) -> str:
    if not row.status.startswith(("works", "runs on")):
        return ""
    ours, theirs = row.ours.lines, row.theirs.lines
    found = [
        f"{who}: {_shown(lines)}"
        for who, lines in (("rmqpy", ours - theirs), ("Apache", theirs - ours))
        if lines
    ]
    return "; ".join(found) or "nothing"


def _shown(lines: frozenset[str]) -> str:
    shown = [f"`{line[:LINE_CHARS_MAX]}`" for line in sorted(lines)[:LINES_SHOWN_MAX]]
    rest = len(lines) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _lines(environment: AdminEnvironment, printed: Printed) -> frozenset[str]:
    text = printed.out
    for name, value in sorted(environment.names.items(), key=lambda item: -len(str(item[1]))):
        text = text.replace(str(value), NAMES[name]) if len(str(value)) > 1 else text
    text = re.sub(r"(/[\w.-]+){3,}", "PATH", text)
    text = re.sub(r"[0-9A-F]{16,}|\d+(\.\d+)*", "0", text)
    return frozenset(" ".join(line.split()) for line in text.splitlines() if line.strip())
