"""mqadmin: topics."""

import click

from rmqpy.cli.mq.tool import BROKER_ADDRESS, CLUSTER, TOPIC, Tool, line, switch, time_text, tool_command
from rmqpy.protocol import fastjson
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.order_topics import ORDER_TOPICS, with_queues
from rmqpy.protocol.requests.kv import PutKv
from rmqpy.protocol.requests.offsets import QueryTopicConsumeByWho
from rmqpy.protocol.requests.routes import GetTopicsByCluster
from rmqpy.protocol.requests.topics import GetTopicConfig, UpdateAndCreateTopic
from rmqpy.protocol.topics import TopicConfig

_PERM = click.Choice(["2", "4", "6"])


@tool_command("topicList")
@click.option("-c", "--clusterModel", "with_clusters", is_flag=True, help="Show clusters and groups.")
def topic_list(tool: Tool, with_clusters: bool) -> None:
    """List all topics."""
    if not with_clusters:
        for name in tool.topics(with_system=True):
            click.echo(name)
        return
    line((20, "#Cluster Name"), (48, "#Topic"), (48, "#Consumer Group"))
    for cluster in sorted({state.cluster for state in tool.brokers()}):
        for name in sorted(tool.ask(tool.name_servers()[0], GetTopicsByCluster(cluster=cluster)).topic_list):
            address = next(iter(tool.masters(cluster).values()))
            groups = tool.ask(address, QueryTopicConsumeByWho(topic=name)).group_list
            for group in sorted(groups) or [""]:
                line((20, cluster), (48, name), (48, group))


@tool_command("topicRoute")
@TOPIC
@click.option("-l", "--list", "as_list", is_flag=True, help="As a table.")
def topic_route(tool: Tool, topic: str, as_list: bool) -> None:
    """Show the route of a topic."""
    route = tool.route(topic)
    if not as_list:
        click.echo(fastjson.pretty(json_tree(route)))
        return
    line((45, "#ClusterName"), (32, "#BrokerName"), (50, "#BrokerAddrs"), (10, "#ReadQueue"))
    for queues in sorted(route.queue_datas, key=lambda each: each.broker_name):
        for broker in route.broker_datas:
            if broker.broker_name == queues.broker_name:
                line(
                    (45, broker.cluster),
                    (32, broker.broker_name),
                    (50, fastjson.dumps(broker.broker_addrs)),
                    (10, queues.read_queue_nums),
                    (11, queues.write_queue_nums),
                    (5, queues.perm),
                )


@tool_command("topicStatus")
@TOPIC
def topic_status(tool: Tool, topic: str) -> None:
    """Show the offsets of the queues of a topic."""
    line((32, "#Broker Name"), (4, "#QID"), (20, "#Min Offset"), (20, "#Max Offset"), (23, "#Last Updated"))
    for row in tool.topic(topic):
        line(
            (32, row.broker),
            (4, row.queue_id),
            (20, row.begin),
            (20, row.end),
            (23, time_text(row.stored_at_ms)),
        )


@tool_command("topicClusterList")
@TOPIC
def topic_cluster_list(tool: Tool, topic: str) -> None:
    """List the clusters of a topic."""
    for cluster in sorted({broker.cluster for broker in tool.route(topic).broker_datas}):
        click.echo(cluster)


@tool_command("updateTopic")
@TOPIC
@BROKER_ADDRESS
@CLUSTER
@click.option("-r", "--readQueueNums", "read_queues", type=click.IntRange(1, 1024), default=8)
@click.option("-w", "--writeQueueNums", "write_queues", type=click.IntRange(1, 1024), default=8)
@click.option("-p", "--perm", type=_PERM, default="6", help="2 to write, 4 to read, 6 for both.")
@switch("-o", "--order", default=False, help="Make it an order topic.")
@click.option("-a", "--attributes", help="Changes: +key=value,-key.")
def update_topic(
    tool: Tool,
    topic: str,
    address: str | None,
    cluster: str | None,
    read_queues: int,
    write_queues: int,
    perm: str,
    order: bool,
    attributes: str | None,
) -> None:
    """Create or update a topic."""
    brokers = tool.chosen(address, cluster)
    for broker in brokers:
        ask = UpdateAndCreateTopic(
            topic=topic,
            read_queue_nums=read_queues,
            write_queue_nums=write_queues,
            perm=int(perm),
            order=order,
            attributes=attributes,
        )
        tool.ask(broker, ask)
        click.echo(f"create topic to {broker} success.")
    if order:
        # As in Apache's tool: for one broker the value is added, for a cluster it replaces the list.
        known = tool.values(ORDER_TOPICS).get(topic, "") if address else ""
        value = with_queues(known, {tool.name_of(broker): write_queues for broker in brokers})
        for name_server in tool.name_servers():
            tool.ask(name_server, PutKv(namespace=ORDER_TOPICS, key=topic, value=value))
        click.echo(f"set {'broker' if address else 'cluster'} orderConf. isOrder=true, orderConf=[{value}]")
    click.echo(_config_line(tool.ask(brokers[0], GetTopicConfig(topic=topic))))


@tool_command("updateTopicPerm")
@TOPIC
@BROKER_ADDRESS
@CLUSTER
@click.option("-p", "--perm", type=_PERM, required=True)
def update_topic_perm(tool: Tool, topic: str, address: str | None, cluster: str | None, perm: str) -> None:
    """Change the permissions of a topic."""
    for broker in tool.chosen(address, cluster):
        known = tool.ask(broker, GetTopicConfig(topic=topic))
        if known.perm == int(perm):
            click.echo("new perm equals to the old one!")
            continue
        ask = UpdateAndCreateTopic(
            topic=topic,
            read_queue_nums=known.read_queue_nums,
            write_queue_nums=known.write_queue_nums,
            perm=int(perm),
            topic_filter_type=known.topic_filter_type,
            topic_sys_flag=known.topic_sys_flag,
            order=known.order,
        )
        tool.ask(broker, ask)
        click.echo(f"update topic perm from {known.perm} to {perm} in {broker} success.")
        click.echo(_config_line(tool.ask(broker, GetTopicConfig(topic=topic))))


@tool_command("deleteTopic")
@TOPIC
@click.option("-c", "--clusterName", "cluster", required=True)
def delete_topic(tool: Tool, topic: str, cluster: str) -> None:
    """Delete a topic from its brokers and all name servers."""
    tool.masters(cluster)
    tool.delete_topic(topic)
    click.echo(f"delete topic [{topic}] from cluster [{cluster}] success.")
    click.echo(f"delete topic [{topic}] from NameServer success.")


def _config_line(topic: TopicConfig) -> str:
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={'R' if topic.perm & 4 else '-'}"
        f"{'W' if topic.perm & 2 else '-'}-, topicFilterType={topic.topic_filter_type.name}, "
        f"topicSysFlag={topic.topic_sys_flag}, order={str(topic.order).lower()}, attributes={topic.attributes}]"
    )
