"""llms.txt: the pages of the site for language models, with each page as Markdown beside it."""

import shutil
from pathlib import Path

from docsite.pages import listed, title


def write(pages: Path, site: Path, nav: list[object]) -> None:
    """Copy the staged pages into the site, and list those of the navigation in llms.txt."""
    for path in pages.rglob("*.md"):
        target = site / path.relative_to(pages)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    lines = [
        "# rmqpy",
        "",
        "> RocketMQ without the JVM: name server, broker, Python client, Spark connector.",
        "",
    ]
    for section in nav:
        assert isinstance(section, dict)
        for name, found in section.items():
            lines += [f"## {name}", ""]
            lines += [f"- [{title((pages / page).read_text('utf-8'))}]({page})" for page in listed(found)]
            lines.append("")
    (site / "llms.txt").write_text("\n".join(lines), "utf-8")
