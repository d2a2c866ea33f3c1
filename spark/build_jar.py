"""Jar build: compiles the Java sources of the connector against PySpark's own jars.

`python spark/build_jar.py` for development, and `hatch_build.py` for wheels. Equal sources become an equal jar: its
entries are sorted and have a fixed time. Without a compiler or PySpark nothing is built, and the connector works in
Python.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "java"
JAR = HERE / "pyspark_rocketmq" / "rocketmq-jvm.jar"
#: Spark 4 runs on Java 17 and newer.
RELEASE = "17"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_PROVIDER = "rmqpy.spark.RocketMQProvider\n"
_MANIFEST = "Manifest-Version: 1.0\r\n\r\n"
#: The first moment of a zip file.
_TIME = (1980, 1, 1, 0, 0, 0)
_COMPILE_SECONDS_MAX = 600


class MissingTool(Exception):
    """The jar cannot be built here. The text says what to install."""


def build() -> Path:
    """Compile the sources, and return the jar. Raises `MissingTool`."""
    javac, jars = _javac(), _spark_jars()
    sources = sorted(SOURCES.rglob("*.java"))
    with tempfile.TemporaryDirectory(prefix="rmqpy-jar-") as folder:
        classes = Path(folder)
        command = [javac, "--release", RELEASE, "-proc:none", "-Xlint:-options", "-d", folder]
        done = subprocess.run(
            [*command, "-cp", f"{jars}/*", *map(str, sources)],
            timeout=_COMPILE_SECONDS_MAX,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"javac failed:\n{done.stdout}{done.stderr}")
        _pack(classes)
    return JAR


def _pack(classes: Path) -> None:
    entries = {"META-INF/MANIFEST.MF": _MANIFEST.encode(), _SERVICE: _PROVIDER.encode()}
    entries |= {path.relative_to(classes).as_posix(): path.read_bytes() for path in classes.rglob("*.class")}
    # A reader of the old jar keeps it.
    unfinished = JAR.with_suffix(".tmp")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as jar:
        for name in sorted(entries):
            about = zipfile.ZipInfo(name, _TIME)
            about.compress_type = zipfile.ZIP_DEFLATED
            about.external_attr = 0o644 << 16
            jar.writestr(about, entries[name])
    unfinished.replace(JAR)


def _javac() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=f"{home}/bin") if home else None
    found = found or shutil.which("javac")
    if found is None:
        raise MissingTool(
            "no javac: apt-get install default-jdk-headless, or set JAVA_HOME to a JDK 17 or newer"
        )
    return found


def _spark_jars() -> Path:
    home = os.environ.get("SPARK_HOME")
    spec = None if home else importlib.util.find_spec("pyspark")
    if home is None and spec is not None and spec.origin is not None:
        home = str(Path(spec.origin).parent)
    if home is None or not Path(home, "jars").is_dir():
        raise MissingTool("no jars of Spark: install PySpark where this runs, or set SPARK_HOME")
    return Path(home, "jars")


def main() -> None:
    """Build the jar, or say why there is none."""
    try:
        print(build())
    except MissingTool as missing:
        JAR.unlink(missing_ok=True)
        print(f"format rocketmq-jvm is not built: {missing}", file=sys.stderr)


if __name__ == "__main__":
    main()
