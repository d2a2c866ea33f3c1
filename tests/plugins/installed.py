"""Distributions with plug-ins in a temporary folder, for a test's own process and for others."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "plugins"


def install(folder: Path, name: str, plugins: Mapping[str, str], code: str | None = None) -> Path:
    """Write a distribution `name` 1.0 with these entry points, and its module `code`; return the folder for
    `sys.path`."""
    about = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{plugin} = {target}" for plugin, target in plugins.items()]
    (about / "entry_points.txt").write_text("\n".join(["[rmqpy.plugins]", *lines, ""]))
    if code is not None:
        (folder / f"{name.replace('-', '_')}.py").write_text(dedent(code))
    return folder


def install_examples(folder: Path) -> list[Path]:
    """Write the entry points of the sample plug-ins; return the folders for `sys.path`."""
    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text("utf-8"))["project"]
    found = install(folder, project["name"], project["entry-points"]["rmqpy.plugins"])
    return [found, EXAMPLES]
