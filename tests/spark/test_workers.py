"""Worker processes of Spark: their imports are left out of garbage collection."""

import subprocess
import sys

import pytest

import rmqpy
from rmqpy.server import Standalone

pytestmark = pytest.mark.timeout(300)

LATER_GARBAGE = """
import gc, weakref
from pyspark_rocketmq.workers import exclude_imports

class Node: pass

exclude_imports()
first = gc.get_freeze_count()
assert first > 1000, first
node = Node()
node.itself = node
seen = weakref.ref(node)
del node
exclude_imports()
gc.collect()
assert seen() is None
assert gc.get_freeze_count() <= first
"""

#: What a worker does for a task of the source.
READ = """
import gc, sys
from pyspark.sql.types import StructType
from pyspark_rocketmq.source import RocketMQSource

source = RocketMQSource({"nameserver": sys.argv[1], "subscribe": sys.argv[2], "startingOffsets": "earliest"})
reader = source.streamReader(schema=StructType().add("body", "binary"))
start = reader.initialOffset()
tasks = reader.partitions(start, reader.next_offset(start, is_limited=False))
assert gc.get_freeze_count() == 0
assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 1
assert gc.get_freeze_count() > 1000
"""

#: What the worker does that plans a micro-batch of the sink.
PLAN_WRITE = """
import gc, sys
from pyspark.sql.types import StructType
from pyspark_rocketmq.source import RocketMQSource

source = RocketMQSource({"nameserver": sys.argv[1], "topic": sys.argv[2]})
assert gc.get_freeze_count() == 0
source.streamWriter(schema=StructType().add("body", "binary"), overwrite=False)
assert gc.get_freeze_count() > 1000
"""


@pytest.mark.parametrize("program", [LATER_GARBAGE, READ, PLAN_WRITE])
def test_imports_are_excluded_and_later_garbage_is_collected(
    server: Standalone, producer: rmqpy.Producer, topic: str, program: str
) -> None:
    producer.send(topic, "x")
    subprocess.run([sys.executable, "-c", program, server.namesrv, topic], check=True, timeout=240)
