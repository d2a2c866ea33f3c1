"""The message rate of empty handlers: rmqpy's push consumer and poll loop, and Java's push consumer.

Goal: the ratio on the same broker and messages, and the CPU time of a message. Method: HANDLER_MESSAGES messages of
100 bytes are stored; each client reads all of them as a new group, in its own process, one client after the other.
The figures are for reading; no limit is checked.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqpy
from interop import wire
from interop.servers import Cluster

COUNT = int(os.environ.get("HANDLER_MESSAGES") or 400_000)
ROUNDS = 3
QUEUES = 8

pytestmark = pytest.mark.timeout(900)


def test_empty_handlers_of_both_languages(
    originals: Callable[[str], Path], cluster_of: Callable[[str], Cluster]
) -> None:
    cluster = cluster_of("rmqpy")
    build = originals("java-5.5.0")
    topic = "empty-handlers"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, QUEUES)
    with rmqpy.Producer(cluster.namesrv, send_timeout=30.0) as producer:
        for _ in range(COUNT // 1000):
            producer.send_batch([rmqpy.Message(topic, b"x" * 100) for _ in range(1000)])
    script = str(Path(__file__).with_name("empty_handler.py"))
    classes = f"{build / 'classes'}:{build / 'lib'}/*"
    commands = {
        "java push": ["java", "-Xmx512m", "-cp", classes, "interop.EmptyHandler"],
        "rmqpy push": [sys.executable, script],
        "rmqpy poll": [sys.executable, script],
    }
    best: dict[str, tuple[float, float]] = {}
    for attempt in range(ROUNDS):
        for name, command in commands.items():
            group = f"{name}-{attempt}".replace(" ", "-")
            arguments = [cluster.namesrv, group, topic, str(COUNT), *name.split()[1:]]
            ran = subprocess.run(
                [*command, *arguments], capture_output=True, text=True, check=True, timeout=200
            )
            seconds, cpu = map(float, ran.stdout.split())
            best[name] = min(best.get(name, (seconds, cpu)), (seconds, cpu))
    java = COUNT / best["java push"][0]
    print(f"\n{COUNT} messages, best of {ROUNDS}")
    for name, (seconds, cpu) in best.items():
        rate = COUNT / seconds
        print(
            f"{name:12} {rate:9.0f} msg/s  {rate / java:5.2f} x Java  {cpu / COUNT * 1e6:6.2f} us CPU a message"
        )
