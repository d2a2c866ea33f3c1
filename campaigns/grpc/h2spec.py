"""The gRPC port under h2spec, a conformance test of HTTP/2: `make campaign NAME=grpc-h2spec`, H2SPEC.

Needs `h2spec`, by default the one in PATH: `go build ./cmd/h2spec` in its sources, github.com/summerwind/h2spec. The
table has the cases of each chapter. A case that fails is an error, unless `EXPLAINED` has the reason.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from campaigns.grpc.idle import FREE, Broker
from hostile.target import parsed

#: A method that refuses what h2spec sends, as every method does.
PATH = "/apache.rocketmq.v2.MessagingService/QueryRoute"
RUN_SECONDS_MAX = 300.0
CHAPTERS = {"generic": "generic", "http2": "HTTP/2, RFC 7540", "hpack": "HPACK, RFC 7541"}
_BODILESS = (
    "the case wants a body in the answer; a refused gRPC call has headers only, and they end the stream"
)
#: Cases that fail, with the reason.
EXPLAINED: Mapping[str, str] = {
    "generic/2: Sends a WINDOW_UPDATE frame on half-closed (remote) stream": _BODILESS,
    "generic/2: Sends a PRIORITY frame on half-closed (remote) stream": _BODILESS,
}
OUTCOMES = ("passed", "failed", "skipped")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--h2spec", default="h2spec", help="the program")
    asked = parser.parse_args()
    program = shutil.which(asked.h2spec)
    if program is None:
        parser.error(f"{asked.h2spec} is not installed: build it with Go from github.com/summerwind/h2spec")
    with tempfile.TemporaryDirectory(prefix="rmqpy-h2spec-") as name:
        folder = Path(name)
        broker = Broker(folder / "data", FREE)
        try:
            host, port = parsed(broker.grpc)
            report = folder / "report.xml"
            command = [program, "-h", host, "-p", str(port), "-P", PATH, "--strict", "-j", str(report)]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
            )
            if not report.exists():
                sys.exit(f"h2spec made no report:\n{done.stdout}{done.stderr}")
            is_alive = broker.process.poll() is None
            sys.exit(0 if show(report) and is_alive else 1)
        finally:
            broker.stop()


def show(report: Path) -> bool:
    """Print the result of each chapter and the cases that fail; return whether all of these are explained."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    failed: list[tuple[str, str]] = []
    for suite in ElementTree.parse(report).iter("testsuite"):
        chapter = suite.get("package", "").partition("/")[0]
        for case in suite.iter("testcase"):
            title = f"{suite.get('package')}: {case.get('classname')}"
            problem = case.find("failure") if case.find("failure") is not None else case.find("error")
            if problem is not None:
                failed.append((title, " ".join((problem.text or "").split())))
            outcome = (
                "failed"
                if problem is not None
                else "skipped"
                if case.find("skipped") is not None
                else "passed"
            )
            counts[chapter][outcome] += 1
    print("| h2spec | passed | failed | skipped |\n|---|---|---|---|")
    for chapter, title in CHAPTERS.items():
        print(f"| {title} | {' | '.join(str(counts[chapter][outcome]) for outcome in OUTCOMES)} |")
    for title, text in failed:
        print(f"failed: {title}\n  {text}\n  {EXPLAINED.get(title, 'not explained')}")
    return all(title in EXPLAINED for title, _ in failed) and bool(counts)


if __name__ == "__main__":
    main()
