"""`import rmqpy`: its cost is negligible."""

import json
import subprocess
import sys

import rmqpy
from rmqpy.testing import broker

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


def test_every_public_name_exists_and_is_documented() -> None:
    for name in rmqpy.__all__:
        assert name in dir(rmqpy)
        value = getattr(rmqpy, name)
        if name != "__version__":
            assert value.__doc__ or name == "QueueSelector", name


WITHOUT_DEPENDENCIES = """
import importlib.metadata, re, sys
for line in importlib.metadata.requires("rmqpy"):
    name = re.match(r"[\\w-]+", line)[0]
    sys.modules[{"pyyaml": "yaml"}.get(name, name.replace("-", "_"))] = None
import rmqpy
for name in rmqpy.__all__:
    getattr(rmqpy, name)
with rmqpy.Producer(sys.argv[1]) as producer:
    producer.send("light", b"message")
with rmqpy.PullConsumer("light", sys.argv[1], start_from="earliest") as consumer:
    consumer.subscribe("light")
    print(consumer.poll(timeout=10)[0].body)
"""


def test_clients_need_none_of_the_packages_that_rmqpy_depends_on() -> None:
    with broker() as server:
        command = [sys.executable, "-I", "-c", WITHOUT_DEPENDENCIES, server.namesrv]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("b'message'\n", "")
