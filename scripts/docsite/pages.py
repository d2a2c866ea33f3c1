"""Pages: the documents of the repository as pages of the site.

A page keeps the text of its document. Its links are rewritten: a document becomes its page, another file of the
repository a page that shows the file, a folder a list of its files. The site needs no address of a repository for that.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: Documents whose page has another name. Other documents of docs/ lose the folder, those of other folders keep it.
RENAMED: Final = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "SECURITY.md": "vulnerabilities.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
}
FOLDERS: Final = ("docs", "conf", "benchmarks")
#: Parts of other documents.
PARTS: Final = {"benchmarks/notes.md"}
#: The navigation; texts in brackets are made elsewhere. Pages that are not listed are reached by links.
SECTIONS: Final[list[tuple[str, list[str]]]] = [
    ("Overview", ["index.md", "install.md", "terms.md", "versions.md", "changelog.md"]),
    (
        "Tasks",
        [
            "migrate-from-kafka.md",
            "migrate-from-celery.md",
            "migrate-from-apache.md",
            "kubernetes.md",
            "backup.md",
            "addresses.md",
            "replicas.md",
            "security.md",
            "tls.md",
            "monitoring.md",
        ],
    ),
    (
        "Use",
        [
            "client.md",
            "work-queues.md",
            "celery.md",
            "schedules.md",
            "tiered-storage.md",
            "static-topics.md",
            "compaction.md",
            "light-queues.md",
            "lite-topics.md",
            "grpc.md",
            "tables.md",
            "spark-from-kafka.md",
            "spark.md",
            "console.md",
        ],
    ),
    ("Reference", ["features.md", "commands.md", "settings.md", "mqadmin.md", "store.md", "conf/index.md"]),
    ("API", []),
    ("Errors", []),
    ("Performance", ["benchmarks/report.md", "benchmarks/index.md"]),
    (
        "Contribute",
        ["contributing.md", "architecture.md", "internals/index.md", "vulnerabilities.md", "conduct.md"],
    ),
]
LANGUAGES: Final = {
    ".py": "python", ".yaml": "yaml", ".yml": "yaml", ".conf": "properties", ".service": "ini", ".json": "json",
}  # fmt: skip
IMAGES: Final = {".svg", ".png"}
_LINK: Final = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")


def tracked() -> list[str]:
    """Return the files of the repository, with new ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(path for path in listed.stdout.splitlines() if (ROOT / path).exists())


def page_of(path: str) -> str | None:
    """Return the page of a document, and None for another file."""
    if path in RENAMED:
        return RENAMED[path]
    folder = path.partition("/")[0]
    if not path.endswith(".md") or folder not in FOLDERS or path in PARTS:
        return None
    return path.removeprefix("docs/").replace("README.md", "index.md")


def prose(text: str, change: Callable[[str], str]) -> str:
    """Return a document with its lines outside fenced blocks changed."""
    lines, is_code = [], False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        lines.append(line if is_code or is_fence else change(line))
    return "\n".join(lines) + "\n"


class _Files:
    """Pages of files that documents link to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tracked = tracked()
        self._written: set[str] = set()

    def page_of(self, path: str) -> str:
        """Return the page that shows a file or folder of the repository, and write it at the first call."""
        is_folder = (ROOT / path).is_dir()
        if PurePosixPath(path).suffix in IMAGES:
            page = f"files/{path}"
        else:
            page = f"files/{path}/index.md" if is_folder else f"files/{path}.md"
        if page not in self._written:
            self._written.add(page)
            target = self._folder / page
            target.parent.mkdir(parents=True, exist_ok=True)
            if page.endswith(PurePosixPath(path).suffix) and not is_folder and not page.endswith(".md"):
                shutil.copy(ROOT / path, target)
            else:
                target.write_text(self._list(path, page) if is_folder else _shown(path), "utf-8")
        return page

    def _list(self, folder: str, page: str) -> str:
        lines = [f"# {folder}", ""]
        for path in self._tracked:
            is_document = page_of(path) is not None
            if path.startswith(f"{folder}/") and (is_document or not path.endswith((".svg", ".json"))):
                found = page_of(path) or self.page_of(path)
                lines.append(f"- [{path.removeprefix(f'{folder}/')}]({relative(found, page)})")
        return "\n".join(lines) + "\n"


def _shown(path: str) -> str:
    text = (ROOT / path).read_text("utf-8")
    language = LANGUAGES.get(PurePosixPath(path).suffix, "text")
    return f"# {PurePosixPath(path).name}\n\n`{path}` of the repository:\n\n````{language}\n{text.rstrip()}\n````\n"


def relative(page: str, origin: str) -> str:
    """Return the link to a page from another one."""
    return os.path.relpath(page, os.path.dirname(origin) or ".")


def write(folder: Path) -> None:
    """Write the pages of all documents, and of the files that they link to."""
    files = _Files(folder)
    for path in files._tracked:
        page = page_of(path)
        if page is None:
            continue

        def link(match: re.Match[str], path: str = path, page: str = page) -> str:
            target, anchor = match[1], match[2] or ""
            if not target or "://" in target or target.startswith("mailto:"):
                return match[0]
            found = os.path.normpath(os.path.join(os.path.dirname(path), target))
            return f"]({relative(page_of(found) or files.page_of(found), page)}{anchor})"

        text = prose((ROOT / path).read_text("utf-8"), lambda line: _LINK.sub(link, _table_row(line)))
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, "utf-8")


def _table_row(line: str) -> str:
    """Return a row with the bars in its code as the renderer reads them: there a code span hides a bar by itself."""
    if not line.startswith("|"):
        return line
    return re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), line)


def title(text: str) -> str:
    """Return the heading of a page."""
    return next(line for line in text.splitlines() if line.startswith("# "))[2:].strip()


def navigation(made: dict[str, list[object]]) -> list[object]:
    """Return the navigation, with the sections that were made from the sources."""
    return [{name: made.get(name) or list(found)} for name, found in SECTIONS]


def listed(nav: object) -> Iterator[str]:
    """Return the pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for item in nav.values():
            yield from listed(item)
    elif isinstance(nav, list):
        for item in nav:
            yield from listed(item)
