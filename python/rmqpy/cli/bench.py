"""`rmqpy bench`: load generator that reports throughput and latency."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqpy.cli.options import POSITIVE, client_config, cluster_options, namespace, number, options
from rmqpy.cli.output import Format, output_option, show
from rmqpy.cli.terminal import progress

if TYPE_CHECKING:
    from rmqpy.config.client import ClientConfig
    from rmqpy.load.targets import Target

_Command = TypeVar("_Command", bound=Callable[..., Any])

DEFAULT_TOPIC = "rmqpy-bench"
#: A group that every broker has. Reading needs one; nothing is committed to it.
GROUP = "TOOLS_CONSUMER"
#: The default group of pops, whose progress is committed.
POP_GROUP = "rmqpy-bench"
PROGRESS_S = 0.5
#: Messages of `bench timer`.
_TIMERS = 100_000


@click.group()
def command() -> None:
    """Measure a broker, rmqpy's or Apache's: throughput, latency, processor time.

    Without --rate the load is a closed loop: each connection keeps --window requests in flight. With --rate messages
    are due at fixed times, and latency counts from the due time, so a broker that stalls is charged for every message
    it delays.
    """


#: Options of every load, above its own.
load_options = options(
    click.argument("topic", default=DEFAULT_TOPIC),
    number("-c", "--connections", low=1, high=10_000, default=4),
    number(
        "-w",
        "--window",
        low=1,
        high=65_536,
        default=64,
        help="Maximum requests in flight on each connection.",
    ),
    number("--threads", low=1, high=64, default=1, help="Threads of the load generator."),
    click.option(
        "--header", type=click.Choice(["json", "binary"]), default="json", show_default=True, help="Encoding."
    ),
    click.option(
        "-d",
        "--duration",
        type=POSITIVE,
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="Length of the measured interval.",
    ),
    click.option(
        "--warm-up",
        type=click.FloatRange(min=0),
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        help="Warm-up before the measured interval.",
    ),
    number("--count", low=1, help="Stop after this many messages, warm-up included."),
    number(
        "--pid",
        "pids",
        low=1,
        multiple=True,
        help="Process of the broker, to report its processor time; found by its port on this machine.",
    ),
    click.option(
        "--plot",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="Write latency by percentile as an SVG file.",
    ),
)

#: Options of the cluster and the output, below those of a load.
place_options = options(cluster_options, output_option)

_body_bytes = number("-s", "--body-bytes", low=1, high=4 << 20, default=128, help="Size of one message body.")
_queues = number(
    "--queues", low=1, high=65_536, default=4, help="Queues on each broker, if the topic is created."
)

#: Options of loads that send.
sending_options = options(
    _body_bytes,
    number(
        "--batch",
        low=1,
        high=32_768,
        default=1,
        help="Messages in one request; more than one sends batches.",
    ),
    _queues,
)


def rate_option(default: float | None) -> Callable[[_Command], _Command]:
    """Add `--rate`."""
    return click.option(
        "-r",
        "--rate",
        type=POSITIVE,
        default=default,
        show_default=default is not None,
        metavar="MSG/S",
        help="Open loop: messages due each second over all connections.",
    )


@command.command()
@load_options
@sending_options
@rate_option(None)
@click.option(
    "--due-in",
    type=POSITIVE,
    metavar="SECONDS",
    help="Send timed messages, all due within one second, this far ahead.",
)
@place_options
def produce(body_bytes: int, batch: int, queues: int, due_in: float | None, **settings: Any) -> None:
    """Send to TOPIC, which is created if it does not exist.

    \b
    rmqpy bench produce -c 64 -w 1                    # 64 producers, each waiting for its answer
    rmqpy bench produce -c 4 -w 256 --header binary   # pipelined
    rmqpy bench produce -c 4 -w 8 --batch 32
    rmqpy bench produce --due-in 86400 --count 1000000
    """
    what: dict[str, Any] = {"messages_each": batch, "body_bytes": body_bytes}
    if due_in is not None:
        if batch > 1:
            raise click.UsageError("--due-in cannot be combined with --batch: batches cannot be timed")
        what["due_ms"] = round((time.time() + due_in) * 1_000)
    _send("produce", what, queues, settings)


@command.command()
@load_options
@sending_options
@rate_option(1000.0)
@place_options
def latency(body_bytes: int, batch: int, queues: int, **settings: Any) -> None:
    """Send to TOPIC at a steady rate and report the time from due to accepted.

    \b
    rmqpy bench latency --rate 30000 -d 120 --plot latency.svg
    """
    _send("produce", {"messages_each": batch, "body_bytes": body_bytes}, queues, settings)


@command.command()
@load_options
@_body_bytes
@_queues
@rate_option(None)
@place_options
def transaction(body_bytes: int, queues: int, **settings: Any) -> None:
    """Send half messages to TOPIC and commit each as soon as it is stored.

    A message counts, and its latency ends, when its commit is acknowledged: two requests in sequence. The half messages
    belong to the group TOOLS_CONSUMER.

    \b
    rmqpy bench transaction -c 64 -w 1
    rmqpy bench transaction -c 4 -w 256 --header binary
    """
    _send("transact", {"messages_each": 1, "body_bytes": body_bytes}, queues, settings)


@command.command()
@load_options
@_body_bytes
@_queues
@rate_option(None)
@click.option(
    "--lead",
    type=POSITIVE,
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Time from the first send to the second in which all messages are due.",
)
@place_options
def timer(body_bytes: int, queues: int, lead: float, **settings: Any) -> None:
    """Send timed messages to TOPIC, all due within one second, and measure their delivery.

    Sends --count messages, 100000 by default, and reports how fast they were accepted and how fast they were delivered
    once due. No other client should write to the topic.

    \b
    rmqpy bench timer --count 500000 -c 8 -w 256 --lead 30
    """
    from rmqpy.errors import ConfigError
    from rmqpy.load.burst import Burst
    from rmqpy.load.targets import writable

    settings["topic"] = _wire_name(settings["topic"])
    settings |= {"count": settings["count"] or _TIMERS, "duration": lead, "warm_up": 0.0}
    config = _config(settings)
    targets = writable(config, settings["topic"], queues=queues)
    burst = Burst(config, settings["topic"])
    due_s = int(time.time() + lead) + 1
    what = {"messages_each": 1, "body_bytes": body_bytes, "due_ms": due_s * 1_000}

    def deliver(result: dict[str, Any]) -> None:
        if result["messages_total"] < settings["count"] or time.time() >= due_s:
            raise ConfigError(
                f"{settings['count']:,} messages were not accepted within {lead:g} s",
                hint="use a longer --lead or a smaller --count",
            )
        found = burst.delivered(
            result["messages_total"], due_s, [watched["pid"] for watched in result["watched"]]
        )
        result["delivery"] = {**found._asdict(), "messages_per_s": found.messages_per_s}

    _measure("produce", targets, what, settings, deliver)


@command.command()
@load_options
@number(
    "-m",
    "--max-messages",
    low=1,
    high=32_768,
    default=32,
    help="Maximum messages in one pull. Apache's broker returns at most 32 by default.",
)
@rate_option(None)
@place_options
def consume(max_messages: int, **settings: Any) -> None:
    """Pull the messages of TOPIC from the beginning. Readers that reach the end start again.

    \b
    rmqpy bench consume -c 16 -w 1
    """
    from rmqpy.load.targets import readable

    settings["topic"] = _wire_name(settings["topic"])
    targets = readable(_config(settings), settings["topic"])
    _measure("consume", targets, {"messages_each": max_messages}, settings)


@command.command()
@load_options
@click.option("-g", "--group", default=POP_GROUP, show_default=True, help="Group that pops.")
@number("-m", "--max-messages", low=1, high=32, default=1, help="Maximum messages in one pop.")
@rate_option(None)
@place_options
def pop(group: str, max_messages: int, **settings: Any) -> None:
    """Pop the messages of TOPIC that the group has not received yet, and acknowledge each.

    The messages of one answer are acknowledged by one request. A message counts, and its latency ends, when its
    acknowledgement is accepted. Send messages first; a pop that finds none waits a second.

    \b
    rmqpy bench produce --count 1000000 -w 256
    rmqpy bench pop -c 64 -w 1
    rmqpy bench pop -c 16 -w 1 -m 32
    """
    from rmqpy.load.targets import readable

    settings["topic"] = _wire_name(settings["topic"])
    targets = readable(_config(settings), settings["topic"])
    _measure("pop", targets, {"messages_each": max_messages}, settings, group=_wire_name(group))


def _send(work: str, what: Mapping[str, Any], queues: int, settings: dict[str, Any]) -> None:
    from rmqpy.load.targets import writable

    settings["topic"] = _wire_name(settings["topic"])
    targets = writable(_config(settings), settings["topic"], queues=queues)
    _measure(work, targets, what, settings)


def _config(settings: Mapping[str, Any]) -> "ClientConfig":
    """The connection to the cluster, for a load that names topics as brokers do."""
    return replace(client_config(settings["namesrv"], settings["timeout"]), namespace="")


def _wire_name(topic: str) -> str:
    """The topic as brokers know it: a load has no client to add the namespace."""
    return topic if (space := namespace()) is None else space.wrap(topic)


def _measure(
    work: str,
    targets: "Sequence[Target]",
    what: Mapping[str, Any],
    settings: Mapping[str, Any],
    go_on: Callable[[dict[str, Any]], None] = lambda result: None,
    *,
    group: str = GROUP,
) -> None:
    """Run a load and show its results, extended by `go_on`."""
    from rmqpy.load import machine, report
    from rmqpy.load.plot import percentiles

    found = [machine.listener(target.address) for target in targets]
    pids = settings["pids"] or sorted({pid for pid in found if pid is not None})
    plan = {
        **what,
        "binary": settings["header"] == "binary",
        **{name: settings[name] for name in ("connections", "window", "threads", "rate", "warm_up", "count")},
        "duration_s": settings["duration"],
    }
    measured = _run(work, settings["topic"], group, targets, plan, _config(settings), pids)
    result = {
        "command": {"work": work, "topic": settings["topic"], **plan},
        "machine": machine.facts(),
        "brokers": [{"address": target.address, "name": target.broker} for target in targets],
        "watched": [{"pid": pid, "private_bytes": machine.private_bytes(pid)} for pid in pids],
        **measured,
    }
    go_on(result)
    if settings["plot"] is not None:
        settings["plot"].write_text(percentiles(result), encoding="utf-8")
    output: Format = settings["output"]
    show(report.summary(result) if output in ("table", "wide") else result, output)


def _run(
    work: Any,
    topic: str,
    group: str,
    targets: "Sequence[Target]",
    plan: Mapping[str, Any],
    config: "ClientConfig",
    pids: Sequence[int],
) -> dict[str, Any]:
    """The load, with a progress line on a terminal."""
    from rmqpy._native import Load
    from rmqpy.load.plan import LoadPlan

    load = Load(
        LoadPlan(
            work,
            topic,
            group,
            targets,
            timeout=config.request_timeout,
            pids=pids,
            credentials=config.signing,
            tls=config.tls.native() if config.tls else None,
            **plan,
        )
    )
    before = 0
    try:
        with progress("bench") as show_progress:
            while not load.wait(PROGRESS_S if sys.stderr.isatty() else None):
                total = load.messages
                rate = (total - before) / PROGRESS_S
                show_progress(0, 0, partial("{:,} messages, {:,.0f}/s".format, total, rate))
                before = total
    finally:
        load.stop()
    report = load.report()
    assert report is not None, "a load that has ended has a report"
    measured: dict[str, Any] = json.loads(report)
    return measured
