"""Child processes that import modules of the tests."""

import os
from pathlib import Path

_TESTS = Path(__file__).resolve().parent


def environment(**more: str) -> dict[str, str]:
    """This process's environment and `more`, with the tests and the repository among the modules."""
    folders = [str(_TESTS), str(_TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders), **more}
