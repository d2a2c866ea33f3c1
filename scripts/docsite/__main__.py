"""Site: builds the documentation as static pages, `make docs`.

Documents, API pages and error pages are staged in target/docs/pages; Zensical makes target/docs/site of them. Links are
checked twice: those of the staged pages by `--strict`, those of the finished HTML here.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from docsite import api, failures, links, llms, pages, project

HERE = Path(__file__).resolve().parent


def configuration(folder: Path, nav: list[object]) -> None:
    """Write the settings of Zensical: those of zensical.toml, the navigation, and the addresses of the project."""
    urls = project.urls()
    lines = ["[project]", f"nav = {inline(nav)}"]
    for key, name in (("site_url", "Documentation"), ("repo_url", "Repository")):
        if name in urls:
            lines.append(f"{key} = {json.dumps(urls[name])}")
    settings = (HERE / "zensical.toml").read_text("utf-8")
    (folder / "zensical.toml").write_text("\n".join(lines) + "\n" + settings, "utf-8")


def inline(value: object) -> str:
    """Return lists, one-key tables and texts as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def stage(folder: Path) -> list[object]:
    """Write the pages below `folder`, and return the navigation."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    reference = api.write(folder)
    errors = failures.write(folder)
    pages.write(folder)
    shutil.copy(HERE / "style.css", folder)
    return pages.navigation({"API": reference, "Errors": errors})


def main(out: Path) -> None:
    nav = stage(out / "pages")
    configuration(out, nav)
    shutil.rmtree(out / "site", ignore_errors=True)
    zensical = Path(sys.executable).with_name("zensical")
    subprocess.run([zensical, "build", "--clean", "--strict"], cwd=out, check=True)
    llms.write(out / "pages", out / "site", nav)
    count, dead = links.check(out / "site")
    for line in dead:
        print(line, file=sys.stderr)
    html = len(list((out / "site").rglob("*.html")))
    print(f"{html} pages in {out / 'site'}, {count} links, {len(dead)} dead")
    sys.exit(1 if dead else 0)


if __name__ == "__main__":
    main(pages.ROOT / "target" / "docs")
