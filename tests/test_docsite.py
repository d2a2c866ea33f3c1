"""Pages of the documentation site: each public name and error has one, and no link is dead."""

import re
from pathlib import Path

import pytest

import rmqpy
from docsite import __main__ as site
from docsite import links, pages
from rmqpy import errors


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The staged pages, and those of the navigation."""
    folder = tmp_path_factory.mktemp("site") / "pages"
    return folder, list(pages.listed(site.stage(folder)))


def test_every_page_of_the_navigation_exists_once(staged: tuple[Path, list[str]]) -> None:
    folder, nav = staged
    assert [page for page in nav if not (folder / page).exists()] == []
    assert len(set(nav)) == len(nav)


def test_every_document_is_in_the_navigation_or_linked(staged: tuple[Path, list[str]]) -> None:
    folder, nav = staged
    linked = {folder / page for page in nav}
    for page in folder.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
            if "://" not in target:
                linked.add((page.parent / target).resolve())
    assert [page for page in folder.rglob("*.md") if page not in linked] == []


def test_links_between_staged_pages_lead_somewhere(staged: tuple[Path, list[str]]) -> None:
    folder, _ = staged
    dead = []
    for page in folder.rglob("*.md"):

        def check(line: str, page: Path = page) -> str:
            for target in re.findall(r"\]\(([^)#\s]+)", line):
                if "://" not in target and not (page.parent / target).exists():
                    dead.append(f"{page.relative_to(folder)}: {target}")
            return line

        pages.prose(page.read_text("utf-8"), check)
    assert dead == []


def test_every_public_name_has_a_heading(staged: tuple[Path, list[str]]) -> None:
    folder, _ = staged
    text = "".join(page.read_text("utf-8") for page in (folder / "api").glob("*.md"))
    headings = set(re.findall(r"^## (\w+) ", text, re.MULTILINE))
    assert set(rmqpy.__all__) - headings == {"RocketMQError", "__version__", "errors", "logging"}


def test_every_error_has_a_page_that_says_what_to_do(staged: tuple[Path, list[str]]) -> None:
    folder, _ = staged
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.RocketMQError):
            text = (folder / "errors" / f"{name}.md").read_text("utf-8")
            _, _, remedy = text.partition("## What to do\n\n")
            assert remedy[:1].isupper() or value is errors.RocketMQError, name


def test_dead_links_of_a_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text('<a href="a/#there">1</a> <a href="a/#gone">2</a> <img src="b.svg">')
    (tmp_path / "a" / "index.html").write_text('<h1 id="there">A</h1> <a href="https://example.com/">3</a>')
    assert links.check(tmp_path) == (3, ["index.html: a/#gone", "index.html: b.svg"])
