"""Jars: fetches those of other brokers by Maven into `.tools/benchmarks/`, and compiles loads in Java there, once."""

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Literal

import click

HERE = Path(__file__).parent
CACHE = HERE.parent / ".tools" / "benchmarks"
_FETCH_SECONDS_MAX = 600

#: The broker's agreed heap and collector; the rest are the options of its start script for Java 17.
BROKER_OPTIONS = (
    "-Xms2g",
    "-Xmx2g",
    "-XX:+UseG1GC",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


class Missing(click.ClickException):
    """A tool is missing; the text names the package that installs it."""


def jars(of: Literal["apache", "apache-proxy", "kafka", "spark-kafka"]) -> Path:
    """A folder of jars: RocketMQ's name server, broker and benchmark producer; its proxy; Kafka's broker; Spark's Kafka
    source."""
    return _built(of) / "lib"


def program(of: Literal["grpc"]) -> str:
    """The class path of a program of this tree, compiled: the load of 5.x clients."""
    target = _built(of, "compile")
    return f"{target / 'classes'}:{target / 'lib'}/*"


def _built(of: str, *goals: str) -> Path:
    for tool, package in (("java", "default-jdk-headless"), ("mvn", "maven")):
        if shutil.which(tool) is None:
            raise Missing(f"{tool} not found; run: apt-get install {package}")
    sources = HERE / "java" / of
    target, stamp = CACHE / of, CACHE / of / "stamp"
    files = sorted(path for path in sources.rglob("*") if path.is_file())
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        command = [
            "mvn",
            "--quiet",
            "--batch-mode",
            "--no-transfer-progress",
            f"-DoutputDirectory={target / 'lib'}",
            f"-Dbenchmarks.build={target}",
            *goals,
            "dependency:copy-dependencies",
        ]
        subprocess.run(command, cwd=sources, check=True, timeout=_FETCH_SECONDS_MAX)
        stamp.write_text(wanted)
    return target


def command(lib: Path, home: Path, main: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """Return the command that runs `main`."""
    places = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
    return ["java", *options, *places, "-cp", f"{lib}/*", main, *arguments]


def version() -> str:
    """The version of `java` on this machine, in one line."""
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=True)
    return done.stderr.splitlines()[-1] if done.stderr else ""
