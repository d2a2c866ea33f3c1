"""Links: checks those of the finished site."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit


class _Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.append(value)


def check(site: Path) -> tuple[int, list[str]]:
    """Return the number of links between files of the site, and those that lead nowhere."""
    pages: dict[Path, _Page] = {}
    for path in site.rglob("*.html"):
        pages[path] = _Page()
        pages[path].feed(path.read_text("utf-8"))
    count, dead = 0, []
    for path, page in pages.items():
        # The page for missing addresses is served at any address: its links start at the root.
        if path.name == "404.html":
            continue
        for link in page.links:
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            count += 1
            target, anchor = urldefrag(link)
            found = (path.parent / unquote(target).partition("?")[0]).resolve() if target else path
            found = found / "index.html" if found.is_dir() else found
            known = pages.get(found)
            if not found.exists() or (anchor and known and unquote(anchor) not in known.anchors):
                dead.append(f"{path.relative_to(site)}: {link}")
    return count, dead
