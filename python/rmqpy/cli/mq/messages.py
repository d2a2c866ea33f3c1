"""mqadmin: find, send and read messages."""

from typing import Final

import click

from rmqpy._native import ReceivedMessage
from rmqpy.admin.topics import QueueState
from rmqpy.admin.traces import Step
from rmqpy.cli.mq.tool import TOPIC, Tool, line, switch, time_ms, time_text, tool_command
from rmqpy.errors import MessageNotFound
from rmqpy.message import Message, MessageQueue
from rmqpy.protocol.names import TRACE_TOPIC

_BROKER = click.option("-b", "--brokerName", "broker")
#: Columns of traces.
_TRACE_WIDTHS: Final = (10, 20, 20, 20, 10, 10)
_QUEUE = click.option("-i", "--queueId", "queue_id", type=click.IntRange(0))


@tool_command("queryMsgById")
@click.option(
    "-i", "--msgId", "ids", required=True, help="The broker's message id; separate several by commas."
)
@click.option("-t", "--topic")
def query_msg_by_id(tool: Tool, ids: str, topic: str | None) -> None:
    """Show a message by the broker's id."""
    for message_id in ids.split(","):
        _print(tool.message(message_id.strip(), topic))


@tool_command("queryMsgByUniqueKey")
@TOPIC
@click.option("-i", "--msgId", "message_id", required=True, help="The id of a send result.")
def query_msg_by_unique_key(tool: Tool, topic: str, message_id: str) -> None:
    """Show a message by the producer's id."""
    _print(tool.message(message_id, topic))


@tool_command("queryMsgByKey")
@TOPIC
@click.option("-k", "--msgKey", "key", required=True)
@click.option("-m", "--maxNum", "count", type=click.IntRange(1), default=64)
@click.option("-p", "--keyType", "key_type", type=click.Choice(["K", "T"]), default="K", help="Key, or tag.")
def query_msg_by_key(tool: Tool, topic: str, key: str, count: int, key_type: str) -> None:
    """Find messages with a key or a tag."""
    is_tag = key_type == "T"
    find = tool.messages_by_tag if is_tag else tool.messages_by_key
    found = find(topic, key, count=count)
    if not found:
        what = "tag" if is_tag else "key"
        raise MessageNotFound(f"no message of {topic!r} has the {what} {key!r}", topic=topic)
    line((50, "#Message ID"), (4, "#QID"), (40, "#Offset"))
    for message in found:
        line((50, message.message_id), (4, message.queue.queue_id), (40, message.queue_offset))


@tool_command("queryMsgByOffset")
@TOPIC
@click.option("-b", "--brokerName", "broker", required=True)
@click.option("-i", "--queueId", "queue_id", type=click.IntRange(0), required=True)
@click.option("-o", "--offset", type=click.IntRange(0), required=True)
def query_msg_by_offset(tool: Tool, topic: str, broker: str, queue_id: int, offset: int) -> None:
    """Show the message at an offset of a queue."""
    state = QueueState(broker, tool.address_of(broker), queue_id, "", offset, offset + 1, 0)
    for message in tool.read_queue(topic, state):
        _print(message)
        return
    raise MessageNotFound(f"queue {queue_id} of {topic!r} at {broker} has no offset {offset}", topic=topic)


@tool_command("sendMessage")
@TOPIC
@click.option("-p", "--body", required=True)
@click.option("-k", "--keys", default="", help="Separated by spaces.")
@click.option("-c", "--tags", "tag")
@_BROKER
@_QUEUE
@switch("-m", "--msgTraceEnable", "with_trace", default=False)
def send_message(
    tool: Tool,
    topic: str,
    body: str,
    keys: str,
    tag: str | None,
    broker: str | None,
    queue_id: int | None,
    with_trace: bool,
) -> None:
    """Send one message."""
    from rmqpy.client.producer.producer import Producer

    if queue_id is not None and broker is None:
        raise click.UsageError("-i needs -b")
    with Producer(tool.client_config, trace=with_trace) as producer:
        queue = None
        if broker is not None:
            found = [
                each
                for each in producer.queues(topic)
                if each.broker == broker and queue_id in (None, each.queue_id)
            ]
            queue = found[0] if found else MessageQueue(topic, broker, queue_id or 0)
        result = producer.send(Message(topic, body, tag=tag, keys=keys.split()), queue=queue)
    line((32, "#Broker Name"), (4, "#QID"), (20, "#Send Result"), (32, "#MsgId"))
    line(
        (32, result.queue.broker),
        (4, result.queue.queue_id),
        (20, result.status.name),
        (32, result.message_id),
    )


@tool_command("queryMsgTraceById")
@click.option("-i", "--msgId", "message_id", required=True, help="The producer's message id.")
@click.option("-t", "--traceTopic", "trace_topic", default=TRACE_TOPIC, show_default=True)
def query_msg_trace_by_id(tool: Tool, message_id: str, trace_topic: str) -> None:
    """Show the producer and consumers of a message, as recorded by clients that trace."""
    steps = tool.trace(message_id, trace_topic=trace_topic)
    for step in steps:
        if step.what == "send":
            _trace_heading("#ProducerGroup", "#SendTime")
            _trace_line("Pub", step)
            click.echo()
    consumed = [step for step in steps if step.what == "consume" and step.outcome is not None]
    for group in dict.fromkeys(step.group for step in consumed):
        _trace_heading("#ConsumerGroup", "#ConsumerTime")
        for step in consumed:
            if step.group == group:
                _trace_line("Sub", step)
        click.echo()


def _trace_heading(group: str, time: str) -> None:
    line(*zip(_TRACE_WIDTHS, ("#Type", group, "#ClientHost", time, "#CostTimes", "#Status"), strict=True))


def _trace_line(kind: str, step: Step) -> None:
    at = "" if step.at_ms is None else time_text(step.at_ms).partition(",")[0]
    # Apache's tool prints two words and no reasons.
    status = "success" if step.outcome == "success" else "failed"
    cells = (kind, step.group or "", step.client.rpartition(":")[0], at, f"{step.took_ms or 0}ms", status)
    line(*zip(_TRACE_WIDTHS, cells, strict=True))


@tool_command("consumeMessage")
@TOPIC
@_BROKER
@_QUEUE
@click.option("-o", "--offset", type=click.IntRange(0), help="From this offset; with -b and -i.")
@click.option("-c", "--messageNumber", "count", type=click.IntRange(1), default=128, show_default=True)
@click.option("-s", "--beginTimestamp", "begin", metavar="TIME", help="Stored at or after this time.")
@click.option("-e", "--endTimestamp", "end", metavar="TIME", help="Stored before.")
@click.option("-g", "--consumerGroup", "group", help="Ignored: nothing is committed.")
def consume_message(
    tool: Tool,
    topic: str,
    broker: str | None,
    queue_id: int | None,
    offset: int | None,
    count: int,
    begin: str | None,
    end: str | None,
    group: str | None,
) -> None:
    """Print messages of a topic, a broker or a queue."""
    if queue_id is not None and broker is None:
        raise click.UsageError("-i needs -b")
    if offset is not None and queue_id is None:
        raise click.UsageError("-o needs -b and -i")
    earliest = 0 if begin is None else time_ms(begin)
    latest = None if end is None else time_ms(end)
    left = count
    for state in tool.topic(topic):
        if broker not in (None, state.broker) or queue_id not in (None, state.queue_id):
            continue
        if offset is not None:
            state = state._replace(begin=max(state.begin, offset))
        for message in tool.read_queue(topic, state):
            stored = message.stored_at_ms
            if stored < earliest or (latest is not None and stored >= latest):
                continue
            if left == 0:
                return
            left -= 1
            click.echo(f"MSGID: {message.message_id} {_place(message)} BODY: {_body(message)}")


@tool_command("printMsg")
@TOPIC
@switch("-d", "--printBody", "with_body", default=True)
def print_msg(tool: Tool, topic: str, with_body: bool) -> None:
    """Print all messages of a topic."""
    for message in tool.messages_between(topic):
        body = f" BODY: {_body(message)}" if with_body else ""
        click.echo(f"MSGID: {message.message_id} {_place(message)}{body}")


def _print(message: ReceivedMessage) -> None:
    for name, value in (
        ("OffsetID", message.offset_message_id),
        ("Topic", message.topic),
        ("Tags", f"[{message.tag or ''}]"),
        ("Keys", f"[{' '.join(message.keys)}]"),
        ("Queue ID", message.queue.queue_id),
        ("Queue Offset", message.queue_offset),
        ("CommitLog Offset", message.commit_log_offset),
        ("Reconsume Times", message.delivery_attempt - 1),
        ("Born Timestamp", time_text(message.born_at_ms)),
        ("Store Timestamp", time_text(message.stored_at_ms)),
        ("Born Host", message.born_host),
        ("Store Host", message.store_host),
        ("System Flag", message.sys_flag),
        ("Properties", dict(message.properties)),
        ("Message Body", _body(message)),
    ):
        click.echo(f"{name + ':':<20} {value}")


def _place(message: ReceivedMessage) -> str:
    return (
        f"[broker={message.queue.broker}, queueId={message.queue.queue_id}, queueOffset={message.queue_offset}, "
        f"storeTimestamp={time_text(message.stored_at_ms)}]"
    )


def _body(message: ReceivedMessage) -> str:
    """The body as printable text."""
    text = message.body.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )
