"""`rmqpy schedule`: messages that a broker sends at times of a calendar."""

from typing import TYPE_CHECKING, Any

import click

from rmqpy.cli import COMMANDS
from rmqpy.cli.command import Rows, cluster_command, columns, confirmed
from rmqpy.cli.output import ms_text

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin
    from rmqpy.admin.schedules import Schedule

_NAME = click.argument("name")
_COLUMNS = ("name", "times", "zone", "topic", "broker", "state", "next", "last")

command = click.Group("schedule", help=COMMANDS["schedule"])


@command.command()
@_NAME
@click.option("--topic", required=True, help="The topic, which must exist.")
@click.option("--body", required=True, help="The body of each message.")
@click.option("--cron", metavar="FIELDS", help="Five fields, such as '0 2 * * *': every night at two.")
@click.option("--every", type=float, metavar="SECONDS", help="An interval instead, at least 1.")
@click.option(
    "--zone", default="UTC", show_default=True, help="The time zone of --cron, such as Europe/Berlin."
)
@click.option("--tag", help="The tag of each message.")
@click.option("--key", "keys", multiple=True, help="A key of each message; may be repeated.")
@click.option(
    "--catch-up",
    type=click.Choice(["latest", "all", "none"]),
    default="latest",
    show_default=True,
    help="The occurrences to send that were missed while no broker ran.",
)
@click.option("--paused", is_flag=True, help="Send nothing before rmqpy schedule resume.")
@click.option("--broker", help="The broker that sends; otherwise the first with the topic.")
@cluster_command
def create(admin: "Admin", name: str, topic: str, body: str, **settings: Any) -> Rows:
    """Create the schedule NAME.

    \b
    rmqpy schedule create nightly --cron "0 2 * * *" --zone Europe/Berlin --topic jobs --body report
    """
    return _row(admin.create_schedule(name, topic, body, **settings))


@command.command("list")
@cluster_command
@columns(*_COLUMNS)
def list_(admin: "Admin") -> Rows:
    """List all schedules, with the next and the last occurrence.

    \b
    rmqpy schedule list
    """
    return [_row(schedule) for schedule in admin.schedules()]


@command.command()
@_NAME
@cluster_command
def show(admin: "Admin", name: str) -> Rows:
    """Show the schedule NAME with its message.

    \b
    rmqpy schedule show nightly
    """
    schedule = admin.schedule(name)
    return _row(schedule) | {
        "catch_up": schedule.catch_up,
        "tag": schedule.tag,
        "keys": list(schedule.keys),
        "properties": dict(schedule.properties),
        "body": schedule.body.decode(errors="replace"),
    }


@command.command()
@_NAME
@cluster_command
def pause(admin: "Admin", name: str) -> Rows:
    """Send nothing for the schedule NAME until it is resumed.

    \b
    rmqpy schedule pause nightly
    """
    admin.pause_schedule(name)
    return _row(admin.schedule(name))


@command.command()
@_NAME
@cluster_command
def resume(admin: "Admin", name: str) -> Rows:
    """Resume the schedule NAME. What it missed during the pause is not sent.

    \b
    rmqpy schedule resume nightly
    """
    admin.resume_schedule(name)
    return _row(admin.schedule(name))


@command.command()
@_NAME
@confirmed
@cluster_command
def delete(admin: "Admin", name: str) -> Rows:
    """Delete the schedule NAME.

    \b
    rmqpy schedule delete nightly --yes
    """
    admin.delete_schedule(name)
    return {"name": name, "state": "deleted"}


def _row(schedule: "Schedule") -> dict[str, Any]:
    return {
        "name": schedule.name,
        "times": schedule.cron or f"every {schedule.every:g} s",
        "zone": schedule.zone if schedule.cron else None,
        "topic": schedule.topic,
        "broker": schedule.broker,
        "state": schedule.fault or ("paused" if schedule.paused else "active"),
        "next": ms_text(schedule.next_ms) if schedule.next_ms else None,
        "last": ms_text(schedule.last_ms) if schedule.last_ms else None,
    }
