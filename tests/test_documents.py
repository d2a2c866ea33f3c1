"""Documents: examples run, commands are listed, links resolve."""

import ast
import builtins
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import rmqpy.testing
from rmqpy import cli
from rmqpy.cli.mq import admin as mqadmin
from rmqpy.otel import RocketMQInstrumentor
from slow import slow_tests

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CODE_OF_CONDUCT.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "conf").glob("*.md")),
]
#: Pages whose programs other tests run: those of Spark, and of clients of RocketMQ 5.
ELSEWHERE = ("spark.md", "spark-from-kafka.md", "grpc.md")
#: The pages that a package index shows of the two distributions, without other files of the repository.
INDEX_PAGES = [ROOT / "python" / "README.md", ROOT / "spark" / "README.md"]


def blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)


def test_the_minute_in_the_readme_runs_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    commands = [
        line.partition("#")[0] for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()
    ]
    programs = [block for block in blocks(ROOT / "README.md", "python") if "spark" not in block]
    with rmqpy.testing.broker() as server:
        monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
        for command in commands:
            if command.startswith(("rmqpy produce", "rmqpy consume")):
                assert cli.run(shlex.split(command)[1:]) == 0
        # Only the id and the queue change from one run to the next.
        changes = r"(?<=message_id  )\w{32}|(?<=queue       )\d"
        (shown,) = blocks(ROOT / "README.md", "text")
        assert re.sub(changes, "…", capfd.readouterr().out) == re.sub(changes, "…", shown)
        for program in programs:
            exec(compile(program, "README.md", "exec"), {})
        for program in blocks(INDEX_PAGES[0], "python"):
            exec(compile(program, "python/README.md", "exec"), {})
        out = capfd.readouterr().out
        assert "SEND_OK" in out
        assert sorted(re.findall(r"\d+ paid (first|second) order", out)) == ["first", "second"]
        for line in "".join(blocks(ROOT / "docs/commands.md", "sh")).splitlines():
            assert cli.run(shlex.split(line)[1:]) == 0
        # Each example of the other pages runs alone, in the cluster that the quick start leaves.
        for page in sorted((ROOT / "docs").glob("*.md")):
            for program in blocks(page, "python"):
                if page.name not in ELSEWHERE:
                    here = program.replace("127.0.0.1:9876", server.namesrv)
                    exec(compile(here, page.name, "exec"), {"__name__": __name__})
    # The page on the client turns telemetry on, for every later client of this process.
    RocketMQInstrumentor().uninstrument()


def test_the_examples_of_the_spark_page_use_only_what_they_or_earlier_ones_define() -> None:
    defined = {"spark", *dir(builtins)}
    for example in blocks(ROOT / "docs/spark.md", "python"):
        tree = ast.parse(example)
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        defined |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
        defined |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        defined |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.alias)}
        assert {name.id for name in names} <= defined


def test_the_page_on_apaches_mqadmin_lists_what_the_wheels_own_serves() -> None:
    head = (ROOT / "docs/mqadmin.md").read_text(encoding="utf-8").partition("|")[0]
    assert mqadmin.SERVED.keys() <= set(re.findall(r"`(\w+)`", head))


def calls(text: str) -> Iterator[list[str]]:
    """The words of each `rmqpy` call in the text, within a line or in a block of code."""
    fences = re.findall(r"^ *```[^\n]*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    lines = [match[1] for fence in fences for match in re.finditer(r"^ *rmqpy (.+)$", fence, re.MULTILINE)]
    inline = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for call in [*lines, *re.findall(r"`rmqpy\s+([^`]+)`", inline)]:
        # Options with a value may precede the command.
        yield re.sub(r"^(-\w+ \S+ )+", "", call.replace("\\|", "|")).split()


def missing(words: list[str]) -> str | None:
    """The first word that should name a command and does not."""
    command: click.Command | None = cli.root
    for word in words:
        if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z][a-z0-9|-]*", word):
            return None
        first, *others = [command.get_command(click.Context(command), name) for name in word.split("|")]
        if None in (first, *others):
            return word
        command = first
    return None


@pytest.mark.parametrize("document", [*DOCUMENTS, *INDEX_PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_documents_exist(document: Path) -> None:
    found = [words for words in calls(document.read_text(encoding="utf-8")) if missing(words)]
    assert [" ".join(words) for words in found] == []


def test_the_finder_of_missing_commands_sees() -> None:
    text = "`rmqpy group lag`, `rmqpy dlq list\\|eat`\n```sh\nrmqpy -n a:1 mqadmin topicList\n```\n"
    assert [missing(words) for words in calls(text)] == ["mqadmin", None, "list|eat"]


def test_the_packages_to_collect_for_a_machine_without_network_are_those_that_a_build_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [command] = re.findall(
        r"^pip download (.*)$", (ROOT / "docs/install.md").read_text("utf-8"), re.MULTILINE
    )
    collected = {re.split("[<>=]", word)[0] for word in shlex.split(command)[2:]}
    needed = project["build-system"]["requires"] + project["project"]["dependencies"]
    assert collected == {re.split("[<>=]", each)[0] for each in needed}


def test_make_help_lists_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    listed = [line.split()[1] for line in done.stdout.splitlines()]
    assert sorted(listed) == sorted(phony[1].split())


@pytest.mark.parametrize("command", ["help", "bench", "campaign"])
def test_lists_of_make_fit_a_terminal(command: str) -> None:
    done = subprocess.run(["make", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            page = document.parent / target if target else document
            assert page.exists(), target
            assert not anchor or anchor in anchors(page), f"{target}#{anchor}"


def test_paths_in_the_map_of_the_code_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    [code] = (block for block in blocks(ROOT / "ARCHITECTURE.md", "") if block.startswith("rust/src/"))
    assert len(text.encode()) <= 12 * 1024
    folders: list[str] = []
    for line in code.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        names = [name for name in line[:28].split() if name.endswith(("/", ".py", ".pyi", ".rs"))]
        if line and depth < 4:
            for name in names:
                found = ROOT.joinpath(*folders[:depth], name)
                assert found.exists(), found
            folders[depth:] = names[-1:]


@pytest.mark.parametrize("page", INDEX_PAGES, ids=lambda path: path.parent.name)
def test_pages_for_the_package_index_have_only_absolute_links(page: Path) -> None:
    targets = re.findall(r"\]\(([^)]*)\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not target.startswith("https://")] == []


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_patterns_of_slow_tests_match_files() -> None:
    for pattern in slow_tests():
        assert (ROOT / pattern.partition("*")[0]).parent.is_dir(), pattern
        if "*" not in pattern:
            assert (ROOT / pattern.partition("::")[0]).exists(), pattern
