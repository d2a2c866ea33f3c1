"""`rmqpy cluster`: info, replicas, promote, failover, drain, create, watch, health, export, import."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from rmqpy.cli import COMMANDS
from rmqpy.cli.checks import disk_free_option, report
from rmqpy.cli.command import (
    Result,
    Rows,
    cluster_command,
    columns,
    confirm,
    printed,
    with_admin,
    yes_option,
)
from rmqpy.cli.options import EXISTING_FILE
from rmqpy.cli.output import note
from rmqpy.cli.watching import looks, show_again, watch_options
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin
    from rmqpy.admin.cluster import BrokerState
    from rmqpy.admin.failover import FailedOver


command = click.Group("cluster", help=COMMANDS["cluster"])


@command.command()
@cluster_command
@columns(
    "cluster", "broker", "id", "address", "version", "in_per_second", "out_per_second", "disk_used", "fault"
)
def info(admin: "Admin") -> Rows:
    """List brokers: address, version, messages a second, disk, and the fault of those that are gone.

    \b
    rmqpy cluster info
    """
    return [_row(state) for state in admin.brokers(with_gone=True)]


@command.command()
@click.argument("broker", required=False)
@cluster_command
@columns(
    *("cluster", "broker", "id", "address", "log_end", "behind_bytes"),
    *("behind_seconds", "in_sync", "silent_seconds", "slaves", "epoch", "lease_seconds", "acting", "fault"),
)
def replicas(admin: "Admin", broker: str | None) -> Rows:
    """List masters and slaves: lag of each slave, whether it is in sync, its last contact with the master, the newest
    epoch of each log, and the rest of the lease of an elected master.

    \b
    rmqpy cluster replicas
    rmqpy cluster replicas broker-a
    """
    states = admin.replicas(broker)
    if broker is not None and not states:
        raise ConfigError(f"no broker is called {broker!r}", hint="list brokers with rmqpy cluster info")
    return [
        {
            "cluster": state.cluster,
            "broker": state.broker,
            "id": state.broker_id,
            "address": state.address,
            "log_end": state.log_end,
            "behind_bytes": state.behind_bytes,
            "behind_seconds": state.behind_seconds,
            "in_sync": state.in_sync,
            "silent_seconds": state.silent_seconds,
            "slaves": state.slaves,
            "epoch": state.epoch,
            "lease_seconds": state.lease_seconds,
            "acting": state.acting,
            "fault": state.fault,
        }
        for state in states
    ]


@command.command()
@click.argument("broker")
@click.option("--id", "broker_id", type=click.IntRange(1), required=True, help="brokerId of the slave.")
@click.option(
    "--sync/--async",
    "sync",
    default=None,
    help="Role of the new master: SYNC_MASTER waits for slaves, ASYNC_MASTER does not. Default: the old master's role.",
)
@click.option("--force", is_flag=True, help="Promote even if messages that the slave lacks are lost.")
@yes_option
@cluster_command
def promote(admin: "Admin", broker: str, broker_id: int, sync: bool | None, force: bool, yes: bool) -> Rows:
    """Promote a slave to master.

    \b
    rmqpy cluster promote broker-a --id 1

    A reachable master first stops taking messages, and the slave copies the rest: nothing is lost. The old master may
    then be stopped and started as a slave. An unreachable master refuses to start as a master later. When it
    follows the new one, it loses the messages that the slave did not have.
    """
    if force and not yes:
        confirm(broker=broker, broker_id=broker_id)
    role = {True: "SYNC_MASTER", False: "ASYNC_MASTER", None: None}[sync]
    promoted = admin.promote(broker, broker_id, role=role, force=force)
    for step in promoted.next_steps:
        note(str(step))
    return {
        "broker": promoted.broker,
        "address": promoted.address,
        "epoch": promoted.epoch,
        "role": promoted.role,
        "copies": promoted.copies,
        "log_end": promoted.log_end,
        "replaced": promoted.replaced,
        "told": promoted.is_told,
        "seconds": round(promoted.seconds, 2),
    }


@command.command()
@click.argument("broker")
@click.option("--to", "broker_id", type=click.IntRange(1), help="Id of the new master at the controller.")
@cluster_command
@columns("broker", "id", "address", "replaced", "epoch", "seconds")
def failover(admin: "Admin", broker: str, broker_id: int | None) -> Rows:
    """Let the controller elect another master. Only replicas in sync are elected: no acknowledged message is lost.

    \b
    rmqpy cluster failover broker-a
    rmqpy cluster failover broker-a --to 2
    """
    return [_moved(admin.failover(broker, to=broker_id))]


@command.command()
@click.argument("server")
@cluster_command
@columns("broker", "id", "address", "replaced", "epoch", "seconds")
def drain(admin: "Admin", server: str) -> Rows:
    """Move every leadership away from a server, host or host:port, before its maintenance.

    \b
    rmqpy cluster drain 10.0.0.7

    Its brokers are slaves afterwards and may be stopped. Nothing is moved if one of them has no other replica in sync.
    """
    return [_moved(each) for each in admin.drain(server)]


@command.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host", "hosts", multiple=True, help="Address of a machine, three times or more. Default: this one."
)
@click.option("--cluster", default="DefaultCluster", show_default=True, help="Name of the cluster.")
@click.option("--broker", default="broker-a", show_default=True, help="Name of the brokers.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for messages. Default: FOLDER on this machine, /var/lib/rmqpy on others.",
)
@printed
@columns("host", "server", "file", "command")
def create(folder: Path, hosts: tuple[str, ...], cluster: str, broker: str, data: Path | None) -> Rows:
    """Write configuration files of three brokers that elect their master, with name servers and controllers.

    On several machines, three or five of the name servers have a controller; on this one there is one controller.

    \b
    rmqpy cluster create trial
    rmqpy cluster create conf --host 10.0.0.1 --host 10.0.0.2 --host 10.0.0.3
    """
    from rmqpy.config import elected_set
    from rmqpy.config.addresses import LOOPBACK

    hosts = hosts or (LOOPBACK,) * elected_set.REPLICAS_MIN
    found = elected_set.files(folder, hosts, cluster=cluster, broker=broker, data=data)
    elected_set.write(found)
    return [
        {"host": each.host, "server": each.role, "file": str(each.path), "command": each.command}
        for each in found
    ]


@command.command()
@watch_options
@with_admin
def watch(admin: "Admin", every: float, rounds: int | None, output: Literal["table", "jsonl"]) -> None:
    """Repeat `cluster info` until Ctrl-C.

    \b
    rmqpy cluster watch --every 5
    """
    for _ in looks(every, rounds):
        show_again([_row(state) for state in admin.brokers(with_gone=True)], output)


@command.command()
@disk_free_option
@cluster_command
def health(admin: "Admin", disk_free_min: int) -> Result:
    """Check every name server and broker. Exit code 1 when one is bad.

    \b
    rmqpy cluster health
    """
    return report(admin.health(disk_free_min=disk_free_min << 20))


@command.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@cluster_command
def export(admin: "Admin", file: Path) -> Rows:
    """Write topics, groups, users and rules of the cluster to FILE, as JSON.

    \b
    rmqpy cluster export cluster.json

    Users are without secrets, which no server returns. Messages and offsets are not included: see rmqpy backup.
    """
    import json

    from rmqpy.config import files

    found = admin.export_cluster()
    text = json.dumps(found, indent=1, ensure_ascii=False)
    files.save_bytes(file, f"{text}\n".encode())
    if (fault := found["access_fault"]) is not None:
        note(f"users and rules are not in the file: {fault}")
    kinds = ("topics", "groups", "users", "rules")
    return {"file": str(file), **{kind: len(found[kind]) for kind in kinds}}


@command.command("import")
@click.argument("file", type=EXISTING_FILE)
@click.option("--dry-run", is_flag=True, help="Only print the plan.")
@yes_option
@cluster_command
@columns("kind", "name", "server", "action", "changes")
def import_(admin: "Admin", file: Path, dry_run: bool, yes: bool) -> Result:
    """Create and change topics, groups, users and rules as in FILE, written by cluster export. Deletes nothing.

    \b
    rmqpy cluster import cluster.json --dry-run
    rmqpy cluster import cluster.json --yes

    Prints the plan, and asks before the first change unless --yes is given. New users get a random secret: set one with
    rmqpy acl user update NAME --new-secret. Rows with `brokers` go to these brokers only, others to all.
    """
    import json

    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file} is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{file} is not an export of a cluster")
    steps = admin.plan_import(document)
    count = sum(step.action != "unchanged" for step in steps)
    rows = [
        {
            "kind": step.kind,
            "name": step.name,
            "server": step.server,
            "action": step.action,
            "changes": step.changes,
        }
        for step in steps
    ]
    if count and not dry_run:
        if not yes:
            for row in rows:
                if row["action"] != "unchanged":
                    note(f"{row['action']} {row['kind']} {row['name']} on {row['server']} {row['changes']}")
            confirm(count=count)
        admin.apply_import(steps)
    note(f"{count} changes, {len(steps) - count} unchanged")
    return Result(rows, 0, ("kind", "name", "server", "action", "changes"))


def _moved(moved: "FailedOver") -> dict[str, object]:
    return {
        "broker": moved.broker,
        "id": moved.broker_id,
        "address": moved.address,
        "replaced": moved.replaced,
        "epoch": moved.epoch,
        "seconds": moved.seconds,
    }


def _row(state: "BrokerState") -> dict[str, object]:
    return {
        "cluster": state.cluster,
        "broker": state.broker,
        "id": state.broker_id,
        "address": state.address,
        "version": state.version,
        "in_per_second": state.in_per_second,
        "out_per_second": state.out_per_second,
        "disk_used": state.disk_used,
        "fault": state.fault,
    }
