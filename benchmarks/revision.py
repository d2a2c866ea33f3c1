"""Revision: the commit of the measured tree."""

import subprocess
from pathlib import Path


def revision() -> str:
    """The commit, with `+` when files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
