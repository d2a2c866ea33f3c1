"""The sdist: cargo accepts its lock without changing it, as maturin demands when pip builds the sdist."""

import shutil
import subprocess
import sysconfig
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MATURIN = Path(sysconfig.get_path("scripts"), "maturin")


@pytest.mark.skipif(shutil.which("cargo") is None or not MATURIN.exists(), reason="needs cargo and maturin")
def test_cargo_accepts_the_lock_of_the_sdist(tmp_path: Path) -> None:
    run([str(MATURIN), "sdist", "--out", str(tmp_path)], ROOT)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    [unpacked] = (path for path in tmp_path.iterdir() if path.is_dir())
    run(["cargo", "update", "--workspace", "--locked", "--offline"], unpacked)


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
