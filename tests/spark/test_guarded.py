"""A cluster with TLS and access control: the options `tls`, `accessKey` and similar ones."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType

import rmqpy
from certificates import Authority, Files, mutual
from pyspark_rocketmq.jvm import FORMAT, JAR
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.source import RocketMQSource
from rmqpy.errors import AuthError, RocketMQError
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BODY = StructType().add("body", "string")


class Guarded(NamedTuple):
    """Servers that everybody shows a certificate and signs for, and the options of a user of theirs."""

    server: Standalone
    files: Files
    options: dict[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    files = Authority(folder).issue("own")
    settings = {
        **mutual(files),
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
    }
    with Standalone(folder / "data", namesrv_port=0, broker_port=0, **settings) as server:
        tls = rmqpy.TLS(ca=files.ca, cert=files.cert, key=files.key)
        root = rmqpy.ClientConfig(
            namesrv=server.namesrv, tls=tls, credentials=rmqpy.Credentials("root", "root-secret")
        )
        with rmqpy.Admin(root) as admin, rmqpy.Producer(root) as producer:
            admin.create_topic("orders", read_queues=1, write_queues=1)
            producer.send("orders", b"paid")
        options = {
            "nameserver": server.namesrv,
            "accessKey": "root",
            "secretKey": "root-secret",
            "tls": "true",
            "tls.caFile": files.ca,
            "tls.certFile": files.cert,
            "tls.keyFile": files.key,
        }
        yield Guarded(server, files, options)


def read(options: dict[str, str]) -> list[str]:
    reader = RocketMQSource({"subscribe": "orders"} | options).reader(schema=BODY)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [body for batch in batches for body in batch.column("body").to_pylist()]


def test_a_topic_behind_tls_and_access_control_is_read(guarded: Guarded) -> None:
    assert read(guarded.options)[:1] == ["paid"]
    careless = {name: text for name, text in guarded.options.items() if name != "tls.caFile"}
    assert read(careless | {"tls.skipVerify": "true"})[:1] == ["paid"]
    assert read(guarded.options | {"tls.serverName": "localhost"})[:1] == ["paid"]


@pytest.mark.parametrize(
    ("without", "given", "told"),
    [
        (("tls.certFile", "tls.keyFile"), {}, "certificate of this client is required"),
        (("tls.caFile",), {}, "no trusted authority has signed"),
        ((), {"tls.serverName": "mq.example"}, "is not for mq.example, but for"),
        (("tls", "tls.caFile", "tls.certFile", "tls.keyFile"), {}, "require TLS"),
        ((), {"secretKey": "guessed"}, "User:root is unknown, or the signature"),
        (("accessKey", "secretKey"), {}, "the request is not signed"),
    ],
)
def test_missing_or_wrong_credentials_are_named(
    guarded: Guarded, without: tuple[str, ...], given: dict[str, str], told: str
) -> None:
    options = {name: text for name, text in guarded.options.items() if name not in without}
    with pytest.raises((RocketMQError, AuthError), match=told):
        read(options | given)


def test_files_of_tls_without_tls_are_refused(guarded: Guarded) -> None:
    with pytest.raises(OptionError, match="have no effect without encryption: set 'tls' to true"):
        read({name: text for name, text in guarded.options.items() if name != "tls"})


@pytest.mark.timeout(300)
def test_a_session_writes_and_reads_there(spark: "SparkSession", guarded: Guarded) -> None:
    rows = spark.range(20).selectExpr("cast(id as string) as value")
    rows.write.format("rocketmq").mode("append").options(**guarded.options, topic="orders").save()
    found = spark.read.format("rocketmq").options(**guarded.options, subscribe="orders").load()
    assert {row.body.decode() for row in found.select("body").collect()} == {"paid", *map(str, range(20))}


@pytest.mark.timeout(300)
@pytest.mark.skipif(not JAR.is_file(), reason="no Java compiler: apt-get install default-jdk-headless")
def test_the_format_in_the_jvm_signs_and_encrypts(
    spark: "SparkSession", guarded: Guarded, tmp_path: Path
) -> None:
    def run(name: str, options: dict[str, str]) -> None:
        rows = spark.readStream.format(FORMAT).options(
            **options, subscribe="orders", startingOffsets="earliest"
        )
        writer = rows.load().selectExpr("concat('jvm ', string(body)) as body").writeStream.format(FORMAT)
        writer = writer.options(**options, topic="copies", createTopic="true")
        query = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    run("signed", guarded.options)
    assert "jvm paid" in read({**guarded.options, "subscribe": "copies"})
    with pytest.raises(StreamingQueryException, match="unknown, or the signature"):
        run("wrong", guarded.options | {"secretKey": "guessed"})
    with pytest.raises(StreamingQueryException, match="unable to find valid certification path"):
        run("untrusted", {name: text for name, text in guarded.options.items() if name != "tls.caFile"})
