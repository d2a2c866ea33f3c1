"""mqadmin: consumer groups, their progress and connections."""

from typing import Any

import click

from rmqpy.admin.groups import Place
from rmqpy.cli.mq.tool import (
    BROKER_ADDRESS,
    CLUSTER,
    GROUP,
    TOPIC,
    Tool,
    line,
    switch,
    time_ms,
    time_text,
    tool_command,
)
from rmqpy.errors import RocketMQError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.assignments import (
    MessageRequestMode,
    PopRollback,
    RequestMode,
    SetMessageRequestMode,
)
from rmqpy.protocol.requests.clients import (
    Connection,
    ConsumerConnections,
    GetConsumerConnectionList,
    GetProducerConnectionList,
)
from rmqpy.protocol.requests.groups import (
    DeleteSubscriptionGroup,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
)
from rmqpy.protocol.requests.offsets import ConsumeStats, GetConsumeStats


@tool_command("updateSubGroup")
@GROUP
@BROKER_ADDRESS
@CLUSTER
@switch("-s", "--consumeEnable", "consume_enable")
@switch("-m", "--consumeFromMinEnable", "consume_from_min_enable")
@switch("-d", "--consumeBroadcastEnable", "consume_broadcast_enable")
@switch("-o", "--consumeMessageOrderly", "consume_message_orderly")
@click.option("-q", "--retryQueueNums", "retry_queue_nums", type=click.IntRange(0))
@click.option("-r", "--retryMaxTimes", "retry_max_times", type=click.IntRange(-1))
@click.option("-i", "--brokerId", "broker_id", type=click.IntRange(0))
@click.option("-w", "--whichBrokerWhenConsumeSlowly", "which_broker_when_consume_slowly", type=int)
@switch("-a", "--notifyConsumerIdsChanged", "notify_consumer_ids_changed_enable")
@click.option("--attributes", help="Changes: +key=value,-key.")
def update_sub_group(
    tool: Tool,
    group: str,
    address: str | None,
    cluster: str | None,
    attributes: str | None,
    **settings: Any,
) -> None:
    """Create or update a group."""
    given = {name: value for name, value in settings.items() if value is not None}
    changes = (change.strip().partition("=") for change in (attributes or "").split(","))
    given["attributes"] = {name: value for name, _, value in changes if name}
    body = SubscriptionGroup(group_name=group, **given)
    for broker in tool.chosen(address, cluster):
        tool.ask(broker, UpdateAndCreateSubscriptionGroup(body=body))
        click.echo(f"create subscription group to {broker} success.")


@tool_command("deleteSubGroup")
@GROUP
@BROKER_ADDRESS
@CLUSTER
@switch("-r", "--removeOffset", "with_offsets", default=True)
def delete_sub_group(
    tool: Tool, group: str, address: str | None, cluster: str | None, with_offsets: bool
) -> None:
    """Delete a group, but not its retry and dead-letter topics: they may hold messages."""
    for broker in tool.chosen(address, cluster):
        tool.ask(broker, DeleteSubscriptionGroup(group_name=group, clean_offset=with_offsets))
        click.echo(f"delete subscription group [{group}] from broker [{broker}] success.")


@tool_command("getConsumerConfig")
@GROUP
def get_consumer_config(tool: Tool, group: str) -> None:
    """Show the settings of a group on each broker."""
    from rmqpy.protocol.declare import json_tree

    for broker, found in sorted(tool.group(group).items()):
        click.echo(f"============={broker}===================")
        for key, value in sorted(json_tree(found).items()):
            click.echo(f"{key:<40}=  {value}")


@tool_command("consumerProgress")
@click.option("-g", "--groupName", "group", help="The group. Default: one line for each group.")
@click.option("-t", "--topicName", "topic", help="Only this topic.")
@switch("-s", "--showClientIP", "with_clients", default=False)
def consumer_progress(tool: Tool, group: str | None, topic: str | None, with_clients: bool) -> None:
    """Show the progress of a group in each queue, or of all groups."""
    if with_clients:
        raise click.UsageError("-s true: use rmqpy group members")
    if group is not None:
        # Raises for names that do not exist; brokers report no progress for those.
        tool.progress(group, topic)
        _print_progress(tool, group, topic)
        return
    line(
        *((64, "#Group"), (6, "#Count"), (24, "#Version"), (7, "#Type"), (12, "#Model"), (7, "#TPS")),
        (12, "#Diff Total"),
    )
    for name in tool.groups():
        connections = _connections(tool, name)
        stats = _stats(tool, name, None)
        held = [each for one in stats.values() for each in one.offset_table.values()]
        members = {each.client_id: each for one in connections for each in one.connection_set}
        line(
            (64, name),
            (6, len(members)),
            (24, max((each.version for each in members.values()), default="OFFLINE")),
            (7, "" if not connections else connections[0].consume_type.name.removeprefix("CONSUME_")),
            (12, "" if not connections else connections[0].message_model.name),
            (7, f"{sum(one.consume_tps for one in stats.values()):.0f}"),
            (12, sum(each.broker_offset - each.consumer_offset for each in held)),
        )


@tool_command("consumerConnection")
@GROUP
@BROKER_ADDRESS
def consumer_connection(tool: Tool, group: str, address: str | None) -> None:
    """List the members of a group and their subscriptions."""
    connections = _connections(tool, group, address)
    if not connections:
        raise RocketMQError(f"the consumer group[{group}] not online")
    _print_clients({each.client_id: each for one in connections for each in one.connection_set})
    first = connections[0]
    click.echo("\nBelow is subscription:")
    line((20, "#Topic"), (20, "#SubExpression"))
    for topic, data in sorted(first.subscription_table.items()):
        line((20, topic), (20, data.sub_string or ""))
    click.echo(f"\nConsumeType: {first.consume_type.name}")
    click.echo(f"MessageModel: {first.message_model.name}")
    click.echo(f"ConsumeFromWhere: {first.consume_from_where.name}")


@tool_command("producerConnection")
@click.option("-g", "--producerGroup", "group", required=True)
@TOPIC
def producer_connection(tool: Tool, group: str, topic: str) -> None:
    """List the producers of a group on the brokers of a topic."""
    found: dict[str, Connection] = {}
    for broker in tool.route(topic).broker_datas:
        for address in broker.broker_addrs.values():
            connections = tool.ask(address, GetProducerConnectionList(producer_group=group))
            found |= {each.client_id: each for each in connections.connection_set}
    _print_clients(found)


@tool_command("resetOffsetByTime")
@GROUP
@TOPIC
@click.option("-s", "--timestamp", required=True, help="now, milliseconds, a time, or -1 for the end.")
@BROKER_ADDRESS
@click.option("-q", "--queue", "queue_id", type=click.IntRange(0), help="Only this queue; with -b.")
@click.option("-o", "--offset", type=click.IntRange(0), help="Reset to this offset; with -q.")
@switch("-f", "--force", default=True, help="Ignored: always forced.")
def reset_offset_by_time(
    tool: Tool,
    group: str,
    topic: str,
    timestamp: str,
    address: str | None,
    queue_id: int | None,
    offset: int | None,
    force: bool,
) -> None:
    """Reset the offsets of a group in a topic to a time."""
    broker = None if address is None else tool.name_of(address)
    to: Place = "end" if timestamp == "-1" else time_ms(timestamp)
    moves = tool.reset_offsets(group, topic, to, broker=broker, queue_id=queue_id, offset=offset)
    if queue_id is not None:
        click.echo(f"reset consumer offset to {moves[0].target}")
        return
    line((40, "#brokerName"), (40, "#queueId"), (40, "#offset"))
    for move in moves:
        line((40, move.broker), (40, move.queue_id), (40, move.target))


@tool_command("skipAccumulatedMessage")
@GROUP
@TOPIC
@switch("-f", "--force", default=True, help="Ignored: always forced.")
def skip_accumulated_message(tool: Tool, group: str, topic: str, force: bool) -> None:
    """Let a group continue with messages sent from now on."""
    line((40, "#brokerName"), (40, "#queueId"), (40, "#offset"))
    for move in tool.skip_backlog(group, topic):
        line((40, move.broker), (40, move.queue_id), (40, move.target))


@tool_command("cloneGroupOffset")
@click.option("-s", "--srcGroup", "source", required=True)
@click.option("-d", "--destGroup", "target", required=True)
@TOPIC
@switch("-o", "--offline", default=False, help="Ignored.")
def clone_group_offset(tool: Tool, source: str, target: str, topic: str, offline: bool) -> None:
    """Copy the offsets of one group in a topic to another."""
    tool.clone_offsets(source, target, topic)
    click.echo(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")


@tool_command("setConsumeMode")
@TOPIC
@GROUP
@BROKER_ADDRESS
@CLUSTER
@click.option("-m", "--mode", "mode", required=True, type=click.Choice([mode.name for mode in RequestMode]))
@click.option(
    "-q",
    "--popShareQueueNum",
    "share",
    type=int,
    default=0,
    help="Members with which each member shares its queues; 0: all share all queues.",
)
def set_consume_mode(
    tool: Tool, topic: str, group: str, address: str | None, cluster: str | None, mode: str, share: int
) -> None:
    """Let the members of a group that leave the division of queues to brokers pull or pop a topic."""
    body = MessageRequestMode(
        topic=topic, consumer_group=group, mode=RequestMode[mode], pop_share_queue_num=share
    )
    for broker in tool.chosen(address, cluster):
        tool.ask(broker, SetMessageRequestMode(body=body))
        click.echo(f"set consume mode to {broker} success.")
    click.echo(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]")


@tool_command("exportPopRecord")
@BROKER_ADDRESS
@CLUSTER
@click.option("-d", "--dryRun", "dry_run", help="Only show the brokers, whatever the value.")
def export_pop_record(tool: Tool, address: str | None, cluster: str | None, dry_run: str | None) -> None:
    """Let brokers write records of popped messages, kept elsewhere, to the revive topic."""
    for broker in tool.chosen(address, cluster):
        if dry_run is None:
            tool.ask(broker, PopRollback())
        click.echo(
            f"Export broker records, brokerName={tool.name_of(broker)}, brokerAddr={broker}, "
            f"dryRun={str(dry_run is not None).lower()}"
        )


def _print_progress(tool: Tool, group: str, topic: str | None) -> None:
    line(
        *((64, "#Topic"), (32, "#Broker Name"), (4, "#QID"), (20, "#Broker Offset")),
        *((20, "#Consumer Offset"), (20, "#Diff"), (20, "#Inflight"), (23, "#LastTime")),
    )
    stats = _stats(tool, group, topic)
    lag = in_flight = 0
    for broker, one in sorted(stats.items()):
        for queue in sorted(one.offset_table, key=lambda queue: (queue.topic, queue.queue_id)):
            held = one.offset_table[queue]
            behind = held.broker_offset - held.consumer_offset
            given = held.pull_offset - held.consumer_offset
            lag += behind
            in_flight += given
            line(
                *((64, queue.topic), (32, broker), (4, queue.queue_id), (20, held.broker_offset)),
                *(
                    (20, held.consumer_offset),
                    (20, behind),
                    (20, given),
                    (23, time_text(held.last_timestamp)),
                ),
            )
    click.echo(f"\nConsume TPS: {sum(one.consume_tps for one in stats.values()):.2f}")
    click.echo(f"Consume Diff Total: {lag}")
    click.echo(f"Consume Inflight Total: {in_flight}")


def _stats(tool: Tool, group: str, topic: str | None) -> dict[str, ConsumeStats]:
    ask = GetConsumeStats(consumer_group=group, topic=topic)
    return {broker: tool.ask(address, ask) for broker, address in tool.masters().items()}


def _connections(tool: Tool, group: str, address: str | None = None) -> list[ConsumerConnections]:
    """The statistics of a group on each broker, without brokers on which it has no member."""
    found = []
    for each in [address] if address is not None else sorted(tool.masters().values()):
        try:
            found.append(tool.ask(each, GetConsumerConnectionList(consumer_group=group)))
        except RocketMQError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
    return found


def _print_clients(clients: dict[str, Connection]) -> None:
    line((36, "#ClientId"), (22, "#ClientAddr"), (10, "#Language"), (20, "#Version"))
    for client in sorted(clients.values(), key=lambda each: each.client_id):
        line((36, client.client_id), (22, client.client_addr), (10, client.language), (20, client.version))
