"""A declarative pipeline over topics, run by `spark-pipelines` (Spark 4.1): its tables are in pipeline/payments.py.

    python examples/spark/pipelines.py

Needs `pip install "pyspark[pipelines]"`. With a persistent catalog, such as Hive, each run reads new messages only.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

import rmqpy
from rmqpy.server import Standalone

PIPELINE = Path(__file__).parent / "pipeline" / "payments.py"


def spec(namesrv: str, folder: Path) -> Path:
    """Write the file that `spark-pipelines` reads."""
    (folder / PIPELINE.name).write_text(PIPELINE.read_text(encoding="utf-8"), encoding="utf-8")
    configuration = {
        "spark.payments.nameserver": namesrv,
        "spark.sql.shuffle.partitions": "2",
    }
    described = {
        "name": "payments",
        "storage": (folder / "storage").as_uri(),
        "libraries": [{"glob": {"include": PIPELINE.name}}],
        "configuration": configuration,
    }
    # JSON is YAML.
    path = folder / "spark-pipeline.yml"
    path.write_text(json.dumps(described, indent=2), encoding="utf-8")
    return path


def run(path: Path) -> None:
    """Run the pipeline once."""
    home = Path(pyspark.__file__).parent
    environment = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(home / "bin" / "spark-pipelines"), "run", "--spec", str(path)]
    subprocess.run(command, env=os.environ | environment, cwd=path.parent, check=True)


def main(namesrv: str, folder: Path) -> list[str]:
    """Run the pipeline over some payments. Returns the bodies of the large ones."""
    with rmqpy.Admin(namesrv) as admin:
        for topic in ("payments", "large-payments"):
            admin.create_topic(topic)
    with rmqpy.Producer(namesrv) as producer:
        for euro in range(0, 200, 10):
            producer.send("payments", json.dumps({"customer": f"c-{euro % 3}", "euro": euro}))
    run(spec(namesrv, folder))
    bodies: list[str] = []
    with rmqpy.PullConsumer("example", namesrv, start_from="earliest") as consumer:
        consumer.subscribe("large-payments")
        while len(bodies) < 5 and (messages := consumer.poll(timeout=10)):
            bodies += [message.text() for message in messages]
    print(*bodies, sep="\n")
    return bodies


if __name__ == "__main__":
    with (
        TemporaryDirectory() as scratch,
        Standalone(Path(scratch) / "store", namesrv_port=0, broker_port=0) as server,
    ):
        main(server.namesrv, Path(scratch))
