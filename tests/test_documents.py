"""Truth of the documents: examples run, commands are listed, links resolve."""

import ast
import builtins
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import rmqpy.testing
from rmqpy import cli
from rmqpy.cli.mq import admin as mqadmin

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "conf").glob("*.md")),
]


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
        # What changes from one run to the next is the id and the queue.
        changes = r"(?<=message_id  )\w{32}|(?<=queue       )\d"
        (shown,) = blocks(ROOT / "README.md", "text")
        assert re.sub(changes, "…", capfd.readouterr().out) == re.sub(changes, "…", shown)
        for program in programs:
            exec(compile(program, "README.md", "exec"), {})
        out = capfd.readouterr().out
        assert "SEND_OK" in out
        assert sorted(re.findall(r"\d+ paid (first|second) order", out)) == ["first", "second"]
        for line in "".join(blocks(ROOT / "docs/commands.md", "sh")).splitlines():
            assert cli.run(shlex.split(line)[1:]) == 0
        # Each example of the other pages runs alone, in the cluster that the quick start leaves.
        for page in sorted((ROOT / "docs").glob("*.md")):
            for program in blocks(page, "python"):
                if page.name != "spark.md":
                    here = program.replace("127.0.0.1:9876", server.namesrv)
                    exec(compile(here, page.name, "exec"), {})


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


def test_make_help_lists_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    listed = [line.split()[1] for line in done.stdout.splitlines()]
    assert sorted(listed) == sorted(phony[1].split())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            page = document.parent / target if target else document
            assert page.exists(), target
            assert not anchor or anchor in anchors(page), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
