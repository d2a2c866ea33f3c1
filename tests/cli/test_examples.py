"""Examples of every command: they work, and machine-readable output is JSON."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import rmqpy
from commandline import Run, runner
from rmqpy import cli
from rmqpy.backup.run import back_up
from rmqpy.server import Standalone
from rmqpy.testing import SMALL, Cluster
from waiting import until

#: What makes an example short, and independent of the machine's disk and ports.
SHORTER = {
    "backup": ["--broker", "broker-a"],
    "bench": ["--duration", "0.1", "--warm-up", "0", "--connections", "1", "--threads", "1"],
    "bench timer": ["--count", "1000", "--lead", "5"],
    "consume": ["--count", "1"],
    "topic tail": ["--count", "1"],
    "group watch": ["--rounds", "2", "--every", "0.1"],
    "cluster watch": ["--rounds", "2", "--every", "0.1"],
    "doctor": ["--disk-free-min", "0"],
    "cluster health": ["--disk-free-min", "0"],
    "standalone": ["--namesrv-port", "0", "--broker-port", "0", "--http", "0"],
    "namesrv": ["listenPort=0", "bindAddress=127.0.0.1"],
    "broker": ["listenPort=0"],
    "dashboard": ["--port", "0"],
    "controller": ["listenPort=0"],
    "proxy": ["grpcServerPort=0", "bindAddress=127.0.0.1"],
}
SERVERS = {"standalone", "namesrv", "broker", "dashboard", "controller", "proxy"}
#: What takes typed bodies or an object store, and is called in tests/cli/test_sql.py and tests/tables.
OF_TABLES = {"sql", "archive"}
#: What talks to a program by standard input and output, and is called in tests/assistant.
OF_ASSISTANTS = {"mcp"}
#: What these print, or write to a file, is lines of JSON however they are called.
LINES_OF_JSON = {"message export", "dlq export"}
#: What takes replicas, and is called in tests/crash/test_replica_processes.py and tests/broker/test_elected_roles.py.
OF_REPLICAS = {"cluster promote", "cluster failover", "cluster drain"}
#: What is not for programs to read: the script of a shell.
WITHOUT_JSON = {"completion"}


def leaves(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with the words that call it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, *path, name)
    else:
        yield " ".join(path), command


COMMANDS = dict(leaves(cli.root))


def examples(path: str) -> list[list[str]]:
    """The lines of its help that call it, without the program's name."""
    lines = (line.strip() for line in (COMMANDS[path].help or "").splitlines())
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(f"rmqpy {path}")]


def shorter(path: str) -> list[str]:
    return SHORTER.get(path) or SHORTER.get(path.partition(" ")[0]) or []


def written(words: list[str]) -> str:
    """Text that the command wrote to the file it was given."""
    return Path(words[words.index("--file") + 1]).read_text()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=["broker-a", "broker-b"], traceTopicEnable=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a broker that has been stopped."""
    folder = tmp_path_factory.mktemp("stopped")
    with (
        # With indexes of another size than the default, the commands would need its settings.
        Standalone(folder, namesrv_port=0, broker_port=0, **SMALL, messageIndexEnable=False) as server,
        rmqpy.Producer(server.namesrv) as producer,
    ):
        producer.send("orders", b"first")
    return folder


@pytest.fixture(scope="module")
def member(cluster: Cluster) -> Iterator[str]:
    """The client id of a consumer in `shipping`, a group no command consumes in: it would get a share of the queues."""
    with rmqpy.Admin(cluster.namesrv) as admin, rmqpy.PullConsumer("shipping", cluster.namesrv) as consumer:
        admin.create_topic("orders", exist_ok=True)
        consumer.subscribe("orders")
        members = until(lambda: (consumer.poll(timeout=0.1), admin.members("shipping"))[1])
        yield members[0].client_id


@pytest.fixture
def folder(
    cluster: Cluster,
    stopped: Path,
    member: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Path:
    """Folder of the examples, with the topics and files they name."""
    monkeypatch.chdir(tmp_path)
    for name in ("data", "master", "slave"):
        (tmp_path / name).symlink_to(stopped)
    (tmp_path / "access.log").write_text("one\ntwo\n")
    (tmp_path / "broker.conf").write_text(
        f"brokerName=broker-c\nnamesrvAddr={cluster.namesrv}\nlistenPort=0\nstorePathRootDir={tmp_path}/store\n"
    )
    (tmp_path / "namesrv.conf").write_text("listenPort=0\n")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(
        "accounts: [{accessKey: shipping, secretKey: secret of a test}]"
    )
    with rmqpy.Admin(cluster.namesrv) as admin, rmqpy.Producer(cluster.namesrv) as producer:
        for topic in ("orders", "bills", "lines", "jobs", "rmqpy-bench"):
            admin.create_topic(topic, exist_ok=True)
        admin.create_static_topic("accounts", 8)
        for schedule in admin.schedules():
            admin.delete_schedule(schedule.name)
        if "schedule create" not in request.node.name:
            admin.create_schedule("nightly", "jobs", b"report", cron="0 2 * * *")
        for group in ("billing", "audit"):
            admin.create_group(group, exist_ok=True)
        for user in ("root", "carol", "alice", "shipping"):
            admin.delete_user(user)
        admin.create_user("alice", "secret of a test")
        admin.set_rule("alice", "Topic:ord*", ["Pub"])
        monkeypatch.setenv("RMQPY_NEW_SECRET", "secret of a test")
        producer.send("rmqpy-bench", b"x")
        message_id = producer.send("orders", b"first", keys="A-1").message_id
        note = ("Recall", "1700000000000", "null", "shop", "orders", message_id, "true")
        producer.send("RMQ_SYS_TRACE_TOPIC", "\x01".join(note) + "\x02", keys=message_id)
        timed = producer.send("reminders", b"later", deliver_after=3_600)
        monkeypatch.setenv("RECALL_HANDLE", timed.recall_handle or "")
    with rmqpy.Producer(cluster.namesrv, group="shop") as shop:
        with shop.transaction("orders", b"half") as transaction:
            transaction.leave_unknown()
        monkeypatch.setenv("HALF_ID", transaction.half.offset_message_id)
    if "[restore]" in request.node.name:
        config = rmqpy.ClientConfig(namesrv=cluster.namesrv)
        asyncio.run(back_up(config, "broker-a", tmp_path / "backups" / "broker-a"))
    if "[cluster import]" in request.node.name:
        with rmqpy.Admin(cluster.namesrv) as admin:
            (tmp_path / "cluster.json").write_text(json.dumps(admin.export_cluster()))
    monkeypatch.setenv("MESSAGE_ID", message_id)
    monkeypatch.setenv("CLIENT_ID", member)
    with rmqpy.PullConsumer("billing", cluster.namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues("orders"))
        consumer.commit()
    return tmp_path


@pytest.fixture
def run(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path
) -> Run:
    return runner(cluster.namesrv, monkeypatch, capfd)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_a_summary_and_an_example(path: str) -> None:
    assert COMMANDS[path].get_short_help_str()
    assert examples(path)
    for option in COMMANDS[path].params:
        # What short options such as --count do is said by the name and the bounds.
        if isinstance(option, click.Option) and option.is_flag:
            assert option.help, option.name


def test_the_template_of_the_documents_is_filled_in(run: Run) -> None:
    text = (Path(__file__).parents[2] / "docs/commands.md").read_text()
    [words] = [shlex.split(line) for line in re.findall(r"rmqpy (.* -o template='[^']+')", text)]
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert re.search(r"^\d+ \d+$", out, re.MULTILINE)


@pytest.mark.parametrize(
    "path", [path for path in COMMANDS if path not in SERVERS | OF_REPLICAS | OF_TABLES | OF_ASSISTANTS]
)
def test_the_examples_of_a_command_work_and_its_json_can_be_parsed(path: str, run: Run) -> None:
    formats = next(
        (
            option.type.choices
            for option in COMMANDS[path].params
            if option.name == "output" and isinstance(option.type, click.Choice)
        ),
        (),
    )
    for words in examples(path):
        arguments = [*map(os.path.expandvars, words), *shorter(path)]
        output = next((each for each in ("json", "jsonl") if each in formats), None)
        code, out, err = run(*arguments, *(["-o", output] if output else []))
        # Two brokers differ, and that is what diff's code says.
        assert code == (1 if path == "config diff" else 0), err
        if output == "json":
            rows = json.loads(out)
            assert rows is not None
            # What CSV has for headings where there are no rows.
            if rows and (columns := getattr(COMMANDS[path].callback, "rmqpy_columns", None)):
                assert tuple(rows[0]) == columns
        elif output == "jsonl" or path in LINES_OF_JSON:
            assert all(isinstance(json.loads(line), dict) for line in (out or written(words)).splitlines())
        else:
            assert path in WITHOUT_JSON


@pytest.mark.parametrize("path", sorted(SERVERS))
def test_the_examples_of_a_server_start_and_stop(path: str, cluster: Cluster, folder: Path) -> None:
    for words in examples(path):
        store = ["storePathRootDir=store"] if path in ("standalone", "broker") else []
        command = [sys.executable, "-m", "rmqpy", *words, *shorter(path), *store]
        environment = {**os.environ, "NAMESRV_ADDR": cluster.namesrv, "HOME": str(folder)}
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
