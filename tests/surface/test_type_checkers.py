"""Type checkers: they find each mistake of a user's program, and report nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import rmqpy

PROGRAM = Path(__file__).parent / "wrong_program.py"
PACKAGES = Path(rmqpy.__file__).parents[1]
#: A checker that begins with an empty cache reads the standard library as well.
TIMEOUT_S = 300

pytestmark = pytest.mark.timeout(TIMEOUT_S + 20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a user, away from the settings of this repository."""
    shutil.copy(PROGRAM, tmp_path)
    return tmp_path


def marked() -> set[int]:
    """Numbers of the lines that are wrong."""
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if "# wrong" in line}


def test_program_has_as_many_mistakes_as_it_marks() -> None:
    assert len(marked()) == 14


def test_mypy_names_each_wrong_line(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-error-summary", PROGRAM.name],
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(PACKAGES)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    found = re.findall(rf"^{PROGRAM.name}:(\d+): error: ", ran.stdout, re.MULTILINE)
    assert {int(number) for number in found} == marked(), ran.stdout + ran.stderr


@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")
def test_pyright_names_each_wrong_line(folder: Path) -> None:
    settings = {"include": ["."], "extraPaths": [str(PACKAGES)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson"],
        cwd=folder,
        env=os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    found = {
        one["range"]["start"]["line"] + 1
        for one in json.loads(ran.stdout)["generalDiagnostics"]
        if one["severity"] == "error"
    }
    assert found == marked(), ran.stdout + ran.stderr
