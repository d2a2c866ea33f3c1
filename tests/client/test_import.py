"""`import rmqpy` does next to nothing."""

import json
import subprocess
import sys

import rmqpy

LOOK = """
import json, os, sys, threading
before = set(sys.modules)
import rmqpy
import rmqpy.errors
print(json.dumps({
    "threads": len(os.listdir("/proc/self/task")),
    "sockets": sum("socket" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                   if os.path.exists(f"/proc/self/fd/{fd}")),
    "heavy": sorted({"asyncio", "ssl", "dataclasses", "rmqpy._native"} & (set(sys.modules) - before)),
}))
"""


def test_importing_starts_no_thread_opens_no_socket_and_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", LOOK], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"threads": 1, "sockets": 0, "heavy": []}


def test_every_public_name_is_there_and_documented() -> None:
    for name in rmqpy.__all__:
        assert name in dir(rmqpy)
        value = getattr(rmqpy, name)
        if name != "__version__":
            assert value.__doc__ or name == "QueueSelector", name
