"""Metrics of this process, with the names of Prometheus client libraries, and its version."""

import os
import platform
import time
from collections.abc import Iterator

from rmqpy import __version__
from rmqpy.monitor.exposition import Family, plain

_STARTED = time.time()


def families() -> Iterator[Family]:
    """Version; memory, processor time, open files, start."""
    used = os.times()
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    build = {"version": __version__, "python_version": platform.python_version()}
    yield Family("rmqpy_build_info", "gauge", "Always 1; the version is in the labels.", [(build, 1)])
    yield plain(
        "process_resident_memory_bytes", "gauge", "Resident memory.", pages * os.sysconf("SC_PAGE_SIZE")
    )
    yield plain("process_cpu_seconds_total", "counter", "Processor time.", used.user + used.system)
    yield plain("process_open_fds", "gauge", "Open files.", len(os.listdir("/proc/self/fd")))
    yield plain(
        "process_start_time_seconds", "gauge", "Start time, in seconds since the epoch.", round(_STARTED, 3)
    )
