"""`rmqpy archive`: a topic in Parquet, Delta or Iceberg, each message exactly once."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from rmqpy.cli import terminal
from rmqpy.cli.bodies import body_arguments, body_options
from rmqpy.cli.command import Rows, printed
from rmqpy.cli.options import client_config, cluster_options, complete_groups, complete_topics, number
from rmqpy.cli.output import note


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("destination")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Parquet files, a Delta table, or an Iceberg table.",
)
@click.option(
    "--catalog", metavar="NAME", help="A catalog of pyiceberg; DESTINATION is the name of a table in it."
)
@click.option(
    "--catalog-property",
    "catalog_properties",
    metavar="NAME=VALUE",
    multiple=True,
    callback=lambda context, parameter, given: _properties(given),
    help="A property of the catalog, in addition to pyiceberg's configuration. Repeatable.",
)
@click.option("--since", metavar="TIME|AGE", help="Begin a new archive with messages stored since.")
@click.option(
    "--group",
    shell_complete=complete_groups,
    help="An existing group that gets the position after each commit: the console shows it with its lag.",
)
@body_options
@number("--commit-mb", low=1, high=65_536, default=256, help="Messages in memory that make a commit.")
@click.option("--plan", "is_plan", is_flag=True, help="Print what would be archived, and stop.")
@printed
@cluster_options
def command(
    topic: str,
    destination: str,
    kind: str,
    catalog: str | None,
    catalog_properties: dict[str, str],
    since: str | None,
    group: str | None,
    commit_mb: int,
    is_plan: bool,
    namesrv: str,
    timeout: float,
    **given: Any,
) -> Rows:
    """Archive the messages of TOPIC at DESTINATION, by the hour in which they were stored.

    \b
    rmqpy archive orders /data/orders --plan
    rmqpy archive orders /data/orders
    rmqpy archive orders s3://lake/orders --format delta --body-format json --body-schema 'id bigint'
    rmqpy archive orders shop.orders --format iceberg --catalog lake --catalog-property uri=http://127.0.0.1:8181

    A run goes on where the last one stopped, and ends at the messages that the topic has when it begins. After a kill,
    run it again: no message is lost, and none is archived twice. Needs: pip install 'rmqpy[archive]', rmqpy[delta] or
    rmqpy[iceberg].
    """
    from rmqpy.tables.archive.run import open_archive

    archive = open_archive(
        topic,
        destination,
        client_config(namesrv, timeout),
        format=kind,
        since=since,
        commit_bytes=commit_mb << 20,
        group=group,
        catalog=catalog,
        catalog_properties=catalog_properties,
        **body_arguments(given),
    )
    try:
        queues = sum(1 for each in archive.read.ranges if each.begin < each.end)
        state = "new archive" if archive.is_new else "goes on"
        if is_plan:
            return {
                "topic": topic,
                "destination": destination,
                "format": kind,
                "state": state,
                "queues": queues,
                "messages_at_most": archive.offsets,
            }
        note(f"{state}: up to {archive.offsets:,} messages of {queues} queues to {destination} ({kind})")
        with terminal.progress("archive") as show:
            result = archive.run(partial(_show, show))
    finally:
        archive.close()
    if (counts := archive.read.counts).corrupt:
        note(f"{counts.corrupt:,} bodies cannot be decoded, the first: {counts.first}")
    if archive.group_fault is not None:
        note(f"the messages are archived, but {group} did not get the position: {archive.group_fault}")
    return {"topic": topic, "destination": destination, **result._asdict()}


def _properties(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE")
        found[name] = value
    return found


def _show(show: terminal.Show, done: int, total: int) -> None:
    show(done, total, lambda: f"{done:,} of {total:,} messages")
