"""Project: the addresses that pyproject.toml states."""

import tomllib

from docsite.pages import ROOT


def urls() -> dict[str, str]:
    """Return `[project.urls]`; empty as long as the project has no address."""
    found: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"].get(
        "urls", {}
    )
    return found
