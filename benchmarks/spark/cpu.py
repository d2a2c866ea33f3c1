"""Spark CPU: processor time of Spark from /proc, hardly affected by other processes."""

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from benchmarks.processes import cpu_seconds


def spark() -> dict[int, bool]:
    """Spark's processes below this one: True for a JVM, False for a Python worker or its parent."""
    return {
        pid: "java" in command.split()[0]
        for pid, command in _below(os.getpid()).items()
        if "pyspark" in command
    }


def spark_seconds() -> float:
    """Processor time used so far by them and this process, including ended ones."""
    return sum(seconds({os.getpid(), *spark()}, with_children=True).values())


def seconds(pids: Iterable[int], *, with_children: bool = False) -> dict[int, float]:
    """Processor time of each process so far; ended ones are left out."""
    used = {}
    for pid in pids:
        with suppress(OSError):
            used[pid] = cpu_seconds(pid, with_children=with_children)
    return used


def _below(pid: int) -> dict[int, str]:
    """The descendants of a process: their commands by process id."""
    children: dict[int, list[int]] = defaultdict(list)
    commands: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            children[parent].append(int(process.name))
    found: dict[int, str] = {}
    ahead = [pid]
    while ahead:
        for child in children[ahead.pop()]:
            found[child] = commands[child]
            ahead.append(child)
    return found
