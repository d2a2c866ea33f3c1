"""mqadmin: controllers and the masters they elect."""

import time
from typing import Final

import click

from rmqpy.cli.mq.tool import CLUSTER, Tool, properties_lines, tool_command
from rmqpy.config import properties
from rmqpy.errors import ConfigError
from rmqpy.protocol.requests.controller import (
    CleanBrokerMetadata,
    ElectMaster,
    GetControllerConfig,
    GetControllerMetadata,
    GetSyncStateData,
    ReplicaIdentity,
    UpdateControllerConfig,
)

_ADDRESS = click.option("-a", "--controllerAddress", "controller", required=True, metavar="ADDRESS[;ADDRESS]")
_BROKER_NAME = click.option("-bn", "--brokerName", "broker", required=True)
_NO_LEADER: Final = "the controllers have no leader; start a majority of them"


@tool_command("getControllerMetaData")
@_ADDRESS
def get_controller_meta_data(tool: Tool, controller: str) -> None:
    """Show the group of a controller and its leader."""
    found = tool.ask(_first(controller), GetControllerMetadata())
    click.echo(f"\n#ControllerGroup\t{found.group or ''}")
    click.echo(f"#ControllerLeaderId\t{found.controller_leader_id or ''}")
    click.echo(f"#ControllerLeaderAddress\t{found.controller_leader_address or ''}")
    for peer in filter(None, (found.peers or "").split(";")):
        click.echo(f"#Peer:\t{peer}")


@tool_command("getSyncStateSet")
@_ADDRESS
@CLUSTER
@click.option("-b", "--brokerName", "broker", help="Only this broker set.")
@click.option("-i", "--interval", type=click.IntRange(1), help="Repeat after this many seconds.")
def get_sync_state_set(
    tool: Tool, controller: str, cluster: str | None, broker: str | None, interval: int | None
) -> None:
    """Show masters and in-sync replicas as the controller knows them."""
    if broker is None and cluster is None:
        raise click.UsageError("give -b BROKER or -c CLUSTER")
    while True:
        names = [broker] if broker is not None else _names(tool, cluster)
        _print_sets(tool, controller, names)
        if interval is None:
            return
        time.sleep(interval)


@tool_command("electMaster")
@_ADDRESS
@_BROKER_NAME
@click.option("-b", "--brokerId", "broker_id", type=int, required=True)
@click.option("-c", "--clusterName", "cluster", default="")
def elect_master(tool: Tool, controller: str, broker: str, broker_id: int, cluster: str) -> None:
    """Make an in-sync replica the master of its broker set."""
    ask = ElectMaster(cluster_name=cluster, broker_name=broker, broker_id=broker_id, designate_elect=True)
    elected = tool.ask(_leader(tool, controller), ask)
    click.echo(f"\n#ClusterName\t{cluster}")
    click.echo(f"#BrokerName\t{broker}")
    click.echo(f"#BrokerMasterAddr\t{elected.master_address or ''}")
    click.echo(f"#MasterEpoch\t{elected.master_epoch}")
    click.echo(f"#SyncStateSetEpoch\t{elected.sync_state_set_epoch}")


@tool_command("cleanBrokerMetadata")
@_ADDRESS
@_BROKER_NAME
@click.option("-c", "--clusterName", "cluster")
@click.option("-b", "--brokerControllerIdsToClean", "ids", metavar="ID[;ID]", help="Only these replicas.")
@click.option("-l", "--cleanLivingBroker", "may_live", is_flag=True, help="Also replicas that are alive.")
def clean_broker_metadata(
    tool: Tool, controller: str, broker: str, cluster: str | None, ids: str | None, may_live: bool
) -> None:
    """Make the controller forget replicas, or a whole broker set without a master."""
    if not may_live and cluster is None:
        raise click.UsageError("give -c CLUSTER, or -l to clean replicas that are alive")
    ask = CleanBrokerMetadata(
        cluster_name=cluster,
        broker_name=broker,
        broker_controller_ids_to_clean=ids,
        clean_living_broker=may_live,
    )
    tool.ask(_leader(tool, controller), ask)
    click.echo(f"clear broker {broker} metadata from controller success! ")


@tool_command("getControllerConfig")
@_ADDRESS
def get_controller_config(tool: Tool, controller: str) -> None:
    """Show settings of controllers."""
    for address in _all(controller):
        settings = properties.parse(tool.ask(address, GetControllerConfig()))
        for text in properties_lines(address, settings):
            click.echo(text)


@tool_command("updateControllerConfig")
@_ADDRESS
@click.option("-k", "--key", required=True)
@click.option("-v", "--value", required=True)
def update_controller_config(tool: Tool, controller: str, key: str, value: str) -> None:
    """Change a setting of controllers."""
    for address in _all(controller):
        tool.ask(address, UpdateControllerConfig(body=properties.written({key: value})))
        click.echo(f"update controller config success! {address}\n{key} : {value}")


def _print_sets(tool: Tool, controller: str, names: list[str]) -> None:
    body = tool.ask(_leader(tool, controller), GetSyncStateData(body=names)).body
    for name, found in (body.replicas_info_table if body else {}).items():
        click.echo(f"\n#brokerName\t{name}")
        click.echo(f"#MasterBrokerId\t{_text(found.master_broker_id)}")
        click.echo(f"#MasterAddr\t{_text(found.master_address)}")
        click.echo(f"#MasterEpoch\t{found.master_epoch}")
        click.echo(f"#SyncStateSetEpoch\t{found.sync_state_set_epoch}")
        click.echo(f"#SyncStateSetNums\t{len(found.in_sync_replicas)}")
        for each in found.in_sync_replicas:
            click.echo(f"\nInSyncReplica:\t{_identity(each)}")
        for each in found.not_in_sync_replicas:
            click.echo(f"\nNotInSyncReplica:\t{_identity(each)}")


def _identity(of: ReplicaIdentity) -> str:
    alive = "null" if of.alive is None else str(of.alive).lower()
    return (
        f"ReplicaIdentity{{brokerName='{of.broker_name}', brokerId={of.broker_id}, "
        f"brokerAddress='{of.broker_address}', alive={alive}}}"
    )


def _text(value: object) -> str:
    return "null" if value is None else str(value)


def _names(tool: Tool, cluster: str | None) -> list[str]:
    return sorted({state.broker for state in tool.brokers() if state.cluster == cluster})


def _all(controller: str) -> list[str]:
    return [each for each in (part.strip() for part in controller.split(";")) if each]


def _first(controller: str) -> str:
    addresses = _all(controller)
    if not addresses:
        raise click.UsageError("-a is empty")
    return addresses[0]


def _leader(tool: Tool, controller: str) -> str:
    leader = tool.ask(_first(controller), GetControllerMetadata()).controller_leader_address
    if not leader:
        raise ConfigError(_NO_LEADER)
    return leader
