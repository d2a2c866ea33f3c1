"""mqadmin: brokers, clusters and name servers."""

import time
from collections.abc import Mapping
from typing import Final

import click

from rmqpy.cli.mq.tool import (
    BROKER_ADDRESS,
    CLUSTER,
    Tool,
    line,
    properties_lines,
    switch,
    time_text,
    tool_command,
)
from rmqpy.config import properties
from rmqpy.errors import ConnectError, RequestTimeout
from rmqpy.protocol.requests.brokers import GetBrokerConfig, GetBrokerRuntimeInfo
from rmqpy.protocol.requests.leadership import GetBrokerEpochCache
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus, HaStatus
from rmqpy.protocol.requests.routes import AddWritePermission, WipeWritePermission

_HA_WIDTHS: Final = (32, 16, 16, 20, 16, 18)
_KEY = click.option("-k", "--key", required=True)
_VALUE = click.option("-v", "--value", required=True)
_SPACE = click.option("-s", "--namespace", required=True)
_BROKER_NAME = click.option("-b", "--brokerName", "broker", required=True)
_NAME = click.option("-b", "--brokerName", "broker")


@tool_command("clusterList")
@click.option("-m", "--moreStats", "is_more", is_flag=True, help="Show messages of yesterday and today.")
@click.option("-c", "--clusterName", "cluster", help="Only this cluster.")
def cluster_list(tool: Tool, is_more: bool, cluster: str | None) -> None:
    """List the brokers of all clusters and their traffic."""
    first = ((22, "#Cluster Name"), (22, "#Broker Name"))
    if is_more:
        line(
            *first,
            *((14, f"#{name}") for name in ("InTotalYest", "OutTotalYest", "InTotalToday", "OutTotalToday")),
        )
    else:
        line(
            *(
                *first,
                (4, "#BID"),
                (22, "#Addr"),
                (16, "#Version"),
                (24, "#InTPS(LOAD)"),
                (24, "#OutTPS(LOAD)"),
            ),
            *((12, "#PCWait(ms)"), (8, "#SPACE"), (10, "#ACTIVATED")),
        )
    for state in tool.brokers():
        if cluster not in (None, state.cluster):
            continue
        try:
            info = tool.ask(state.address, GetBrokerRuntimeInfo()).table
        except (ConnectError, RequestTimeout):
            # Apache's tool also lists a broker that does not answer.
            info = {}
        names = ((22, state.cluster), (22, state.broker))
        if is_more:
            line(*names, *((14, count) for count in _day_counts(info)))
            continue
        line(
            *(*names, (4, state.broker_id), (22, state.address), (16, info.get("brokerVersionDesc", ""))),
            (24, _load(state.in_per_second, info, "send")),
            (24, _load(state.out_per_second, info, "pull")),
            (12, info.get("pageCacheLockTimeMills", "")),
            (8, info.get("commitLogDiskRatio", "")),
            (10, info.get("brokerActive", "false")),
        )


@tool_command("brokerStatus")
@BROKER_ADDRESS
@CLUSTER
def broker_status(tool: Tool, address: str | None, cluster: str | None) -> None:
    """Show runtime information of a broker, or of all brokers of a cluster."""
    for broker in tool.chosen(address, cluster):
        place = f"{broker:<24} " if address is None else ""
        for key, value in sorted(tool.ask(broker, GetBrokerRuntimeInfo()).table.items()):
            click.echo(f"{place}{key:<32}: {value}")


@tool_command("getBrokerConfig")
@BROKER_ADDRESS
@CLUSTER
def get_broker_config(tool: Tool, address: str | None, cluster: str | None) -> None:
    """Show settings of a broker, or of all brokers of a cluster."""
    for broker in tool.chosen(address, cluster):
        for text in properties_lines(broker, properties.parse(tool.ask(broker, GetBrokerConfig()).body)):
            click.echo(text)


@tool_command("updateBrokerConfig")
@BROKER_ADDRESS
@CLUSTER
@switch("-a", "--updateAllBroker", "is_for_slaves", default=False, help="Ignored.")
@_KEY
@_VALUE
def update_broker_config(
    tool: Tool, address: str | None, cluster: str | None, is_for_slaves: bool, key: str, value: str
) -> None:
    """Change a setting of a broker, or of all brokers of a cluster."""
    for broker in tool.chosen(address, cluster):
        tool.update_broker_config(tool.name_of(broker), {key: value})
        click.echo(f"update broker config success, {broker}")


@tool_command("getNamesrvConfig")
def get_namesrv_config(tool: Tool) -> None:
    """Show settings of the name servers."""
    for address, settings in tool.namesrv_config().items():
        for text in properties_lines(address, settings):
            click.echo(text)


@tool_command("updateNamesrvConfig")
@_KEY
@_VALUE
def update_namesrv_config(tool: Tool, key: str, value: str) -> None:
    """Change a setting on every name server."""
    tool.update_namesrv_config({key: value})
    click.echo(f"update name server config success!{';'.join(tool.name_servers())}\n{key} : {value}")


@tool_command("updateKvConfig")
@_SPACE
@_KEY
@_VALUE
def update_kv_config(tool: Tool, namespace: str, key: str, value: str) -> None:
    """Set a key-value pair on every name server."""
    tool.set_value(namespace, key, value)
    click.echo("create or update kv config to namespace success.")


@tool_command("haStatus")
@BROKER_ADDRESS
@CLUSTER
@click.option("-i", "--interval", type=click.IntRange(1), help="Repeat at this interval in seconds.")
def ha_status(tool: Tool, address: str | None, cluster: str | None, interval: int | None) -> None:
    """Show the slaves of a master, or the master of a slave."""
    while True:
        for where in tool.chosen(address, cluster):
            _print_ha_status(where, tool.ask(where, GetBrokerHaStatus()))
        if interval is None:
            return
        time.sleep(interval)


def _print_ha_status(address: str, status: HaStatus) -> None:
    click.echo()
    if status.master:
        click.echo(f"#MasterAddr\t{address}")
        click.echo(f"#MasterCommitLogMaxOffset\t{status.master_commit_log_max_offset}")
        click.echo(f"#SlaveNum\t{len(status.ha_connection_info)}")
        click.echo(f"#InSyncSlaveNum\t{status.in_sync_slave_nums}")
        titles = (
            "#SlaveAddr",
            "#SlaveAckOffset",
            "#Diff",
            "#TransferSpeed(KB/s)",
            "#Status",
            "#TransferFromWhere",
        )
        line(*zip(_HA_WIDTHS, titles, strict=True))
        for slave in status.ha_connection_info:
            speed = f"{slave.transferred_byte_in_second / 1_024:.2f}"
            state = "OK" if slave.in_sync else "Fall Behind"
            cells = (slave.addr, slave.slave_ack_offset, slave.diff, speed, state, slave.transfer_from_where)
            line(*zip(_HA_WIDTHS, cells, strict=True))
        return
    own = status.ha_client_runtime_info
    click.echo(f"#MasterAddr\t{own.master_addr or ''}")
    click.echo(f"#CommitLogMaxOffset\t{own.max_offset}")
    click.echo(f"#TransferSpeed(KB/s)\t{own.transferred_byte_in_second / 1_024:.2f}")
    click.echo(f"#LastReadTime\t{time_text(own.last_read_timestamp)}")
    click.echo(f"#LastWriteTime\t{time_text(own.last_write_timestamp)}")
    click.echo(f"#MasterFlushOffset\t{own.master_flush_offset}")


@tool_command("getBrokerEpoch")
@_NAME
@CLUSTER
def get_broker_epoch(tool: Tool, broker: str | None, cluster: str | None) -> None:
    """Show the epochs of brokers: which part of the log each leadership wrote."""
    if (broker is None) == (cluster is None):
        raise click.UsageError("give -b BROKER or -c CLUSTER")
    for state in tool.brokers():
        if broker not in (None, state.broker) or cluster not in (None, state.cluster):
            continue
        cache = tool.ask(state.address, GetBrokerEpochCache()).body
        click.echo(f"\n#clusterName\t{cache.cluster_name}\n#brokerName\t{cache.broker_name}")
        click.echo(f"#brokerAddr\t{state.address}\n#brokerId\t{cache.broker_id}")
        for entry in cache.epoch_list:
            end = min(entry.end_offset, cache.max_offset)
            click.echo(
                f"#Epoch: EpochEntry{{epoch={entry.epoch}, startOffset={entry.start_offset}, endOffset={end}}}"
            )


@tool_command("deleteKvConfig")
@_SPACE
@_KEY
def delete_kv_config(tool: Tool, namespace: str, key: str) -> None:
    """Delete a key-value pair from every name server."""
    tool.set_value(namespace, key, None)
    click.echo("delete kv config from namespace success.")


@tool_command("wipeWritePerm")
@_BROKER_NAME
def wipe_write_perm(tool: Tool, broker: str) -> None:
    """Revoke write permission for the topics of a broker."""
    for address in tool.name_servers():
        count = tool.ask(address, WipeWritePermission(broker_name=broker)).wipe_topic_count
        click.echo(f"wipe write perm of broker[{broker}] in name server[{address}] OK, {count}")


@tool_command("addWritePerm")
@_BROKER_NAME
def add_write_perm(tool: Tool, broker: str) -> None:
    """Restore write permission for the topics of a broker."""
    for address in tool.name_servers():
        count = tool.ask(address, AddWritePermission(broker_name=broker)).add_topic_count
        click.echo(f"add write perm of broker[{broker}] in name server[{address}] OK, {count}")


def _load(rate: float | None, info: Mapping[str, str], pool: str) -> str:
    size = info.get(f"{pool}ThreadPoolQueueSize", "0")
    waited = info.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", "0")
    return f"{rate or 0:.2f}({size},{waited}ms)"


def _day_counts(info: Mapping[str, str]) -> list[int]:
    """Messages in and out, yesterday and today."""
    counts = []
    for later, earlier in (("TodayMorning", "YesterdayMorning"), ("TodayNow", "TodayMorning")):
        for way in ("msgPutTotal", "msgGetTotal"):
            counts.append(int(info.get(way + later, 0)) - int(info.get(way + earlier, 0)))
    return counts
