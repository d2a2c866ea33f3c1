"""Slow tests: the list in slow.txt, which `make test` skips and `make test-all` runs."""

from fnmatch import fnmatchcase
from pathlib import Path

LIST = Path(__file__).with_name("slow.txt")


def slow_tests() -> list[str]:
    """Return the patterns of slow.txt, which match node ids of pytest or files of Rust tests."""
    lines = (line.partition("#")[0].strip() for line in LIST.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def is_slow(node_id: str, patterns: list[str]) -> bool:
    """Return whether a pattern matches the node id, or the file or function it belongs to."""
    names = {node_id, node_id.partition("::")[0], node_id.partition("[")[0]}
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
