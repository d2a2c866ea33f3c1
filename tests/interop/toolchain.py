"""The originals, resolved by their own package managers and compiled once.

Owns `.tools/interop/`: one folder per original with its jars or binary and a stamp of the sources it was built
from. A stamp that matches means nothing is run. Several originals are built at the same time, each by one process only.

Called from the session's fixtures only; a missing tool is reported as `Missing`, which the fixtures turn into a skip.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".tools" / "interop"
CARGO = CACHE / "cargo"
"""Folder of what cargo compiles; kept when a program changes, because most of it is dependencies."""

BUILD_SECONDS_MAX = 540
"""The first build downloads some 100 MB; later ones find everything in the caches of mvn and go."""

PACKAGES = {
    "java": "openjdk-17-jdk-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "go": "golang-go",
    "cargo": "cargo",
    "cc": "gcc",
    "node": "nodejs",
    "npm": "npm",
}
"""The packages to install for each tool, by Debian's names."""

JAVA_CLIENTS = ("5.5.0", "4.9.8")


class Missing(Exception):
    """A tool is not on this machine; the text names the package that brings it."""


def require(*tools: str) -> None:
    """Raise `Missing` unless all of `tools` can be run."""
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if absent:
        packages = sorted({PACKAGES[tool] for tool in absent})
        raise Missing(f"{', '.join(absent)} not found; run: apt-get install {' '.join(packages)}")


class Originals:
    """All builds, running in the background from the first request on."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="build")
        builds: dict[str, Callable[[], Path]] = {f"java-{v}": partial(java_client, v) for v in JAVA_CLIENTS}
        builds |= {"apache": apache_server, "go": go_client, "go-next": next_go_client}
        self._builds: dict[str, Future[Path]] = {name: self._pool.submit(b) for name, b in builds.items()}
        # Built on request: most tests do not need these.
        self._later: dict[str, Callable[[], Path]] = {
            f"grpc-{name}": partial(grpc_client, name) for name in GRPC_COMMANDS
        }

    def folder(self, name: str) -> Path:
        """Return the folder of the program called `name`, once it is built."""
        if build := self._later.pop(name, None):
            self._builds[name] = self._pool.submit(build)
        return self._builds[name].result(timeout=BUILD_SECONDS_MAX)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def java_client(version: str) -> Path:
    """Classes and jars of the Java client for one version of rocketmq-client."""
    require("java", "javac", "mvn")
    sources = HERE / "java" / "client"
    target = CACHE / f"java-{version}"
    return _built(
        target,
        sources,
        [
            *_maven(),
            f"-Drocketmq.version={version}",
            *(["-Dinterop.excluded=**/Pops.java"] if version.startswith("4.") else []),
            f"-Dinterop.build={target}",
            *_copy_jars(target, "compile"),
        ],
    )


def apache_server() -> Path:
    """The jars of Apache's name server and broker."""
    require("java", "mvn")
    sources = HERE / "java" / "server"
    target = CACHE / "apache"
    return _built(target, sources, [*_maven(), *_copy_jars(target)])


def go_client() -> Path:
    """The folder with the Go client's binary."""
    return _go("go")


def next_go_client() -> Path:
    """The same with the client as it is after its last release: that one has no TLS."""
    return _go("go-next", "-modfile=next.mod", "-tags=tls")


def _go(name: str, *options: str) -> Path:
    require("go")
    target = CACHE / name
    command = ["go", "build", "-mod=readonly", *options, "-o", str(target / "peer"), "."]
    return _built(target, HERE / "go", command)


GRPC_COMMANDS = {
    "java": ("java", "javac", "mvn"),
    "go": ("go",),
    "node": ("node", "npm"),
    "rust": ("cargo", "cc"),
}
"""The clients of 5.x, with the tools that build and run their scenarios."""


def grpc_client(language: str) -> Path:
    """The folder with the scenarios of the 5.x client in this language, built."""
    require(*GRPC_COMMANDS[language])
    sources, target = HERE / "grpc" / language, CACHE / f"grpc-{language}"
    commands = {
        "java": [*_maven(), f"-Dinterop.build={target}", *_copy_jars(target, "compile")],
        "go": ["go", "build", "-mod=readonly", "-o", str(target / "grpc"), "."],
        "rust": ["cargo", "build", "--quiet", "--locked", "--target-dir", str(CARGO)],
        "node": ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(target)],
    }
    # npm installs beside its list of packages.
    copied = ("package.json", "package-lock.json", "scenarios.mjs") if language == "node" else ()
    return _built(target, sources, commands[language], copied)


def _maven() -> list[str]:
    return ["mvn", "--quiet", "--batch-mode", "--no-transfer-progress"]


def _copy_jars(target: Path, *goals: str) -> list[str]:
    return [f"-DoutputDirectory={target / 'lib'}", *goals, "dependency:copy-dependencies"]


def _built(target: Path, sources: Path, command: Sequence[str], copied: Sequence[str] = ()) -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _built_alone(target, sources, command, copied)


def _built_alone(target: Path, sources: Path, command: Sequence[str], copied: Sequence[str]) -> Path:
    stamp = target / "stamp"
    wanted = _digest(sources, command)
    if stamp.exists() and stamp.read_text() == wanted:
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in copied:
        shutil.copyfile(sources / name, target / name)
    log = target / "build.log"
    with log.open("wb") as out:
        result = subprocess.run(
            command,
            cwd=sources,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=BUILD_SECONDS_MAX,
            check=False,
        )
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{log.read_text()[-4000:]}")
    stamp.write_text(wanted)
    return target


def _digest(sources: Path, command: Sequence[str]) -> str:
    digest = hashlib.sha256(os.fsencode("\0".join(command)))
    for file in sorted(path for path in sources.rglob("*") if path.is_file() and "target" not in path.parts):
        digest.update(os.fsencode(file.relative_to(sources)))
        digest.update(file.read_bytes())
    return digest.hexdigest()
