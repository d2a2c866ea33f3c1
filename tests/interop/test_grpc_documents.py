"""The programs of docs/grpc.md in Java, Go, Node.js and Rust run as they stand; test_grpc.py runs the one in Python."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqpy
from rmqpy.server import Standalone
from rmqpy.testing import broker

from .toolchain import CARGO

HERE = Path(__file__).with_name("grpc")
PAGE = Path(__file__).parents[2] / "docs" / "grpc.md"
RUN_SECONDS_MAX = 240
#: The marks of the blocks, and the clients that are built for them.
LANGUAGES = {"java": "grpc-java", "go": "grpc-go", "js": "grpc-node", "rust": "grpc-rust"}

pytestmark = pytest.mark.timeout(420, func_only=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with broker(grpcServerPort=0) as server, rmqpy.Admin(server.namesrv) as admin:
        for language in LANGUAGES:
            admin.create_topic(f"{language}-greetings", write_queues=4, read_queues=4)
        yield server


def command(language: str, program: str, folder: Path, built: Path) -> list[str]:
    """Write the program to the folder; return the command that runs it with the built client's dependencies."""
    if language == "java":
        file = folder / "Greetings.java"
        file.write_text(program, encoding="utf-8")
        return ["java", "-Xmx128m", f"-Duser.home={folder}", "-cp", f"{built / 'lib'}/*", str(file)]
    if language == "go":
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(HERE / "go" / name, folder / name)
        (folder / "main.go").write_text(program, encoding="utf-8")
        return ["go", "run", "-mod=readonly", "."]
    if language == "js":
        (folder / "node_modules").symlink_to(built / "node_modules")
        (folder / "greetings.mjs").write_text(program, encoding="utf-8")
        return ["node", "greetings.mjs"]
    for name in ("Cargo.toml", "Cargo.lock"):
        # With another name than the scenarios have, whose binary stays.
        text = (HERE / "rust" / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace('name = "grpc"', 'name = "greetings"'), encoding="utf-8")
    (folder / "src").mkdir()
    (folder / "src" / "main.rs").write_text(program, encoding="utf-8")
    return ["cargo", "run", "--quiet", "--locked", "--target-dir", str(CARGO)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_program_of_the_documentation_runs(
    server: Standalone, originals: Callable[[str], Path], tmp_path: Path, language: str
) -> None:
    assert server.grpc is not None
    (program,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    program = program.replace("127.0.0.1:8081", server.grpc)
    program = program.replace("greetings", f"{language}-greetings")
    done = subprocess.run(
        command(language, program, tmp_path, originals(LANGUAGES[language])),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    lines = done.stdout.split()
    assert "hello" in lines, done.stdout
    # The id of the message comes first.
    assert re.search(r"\b[0-9A-F]{34}\b", done.stdout, re.IGNORECASE)
