"""`rmqpy backup`: a running broker in a folder, and the verification of such a folder."""

import asyncio
from functools import partial
from pathlib import Path

import click

from rmqpy.cli import terminal
from rmqpy.cli.command import Result, Rows, printed
from rmqpy.cli.options import client_config, cluster_options, complete_brokers
from rmqpy.cli.output import note
from rmqpy.cli.store import watched

#: Files that differ, as notes.
_SHOWN_MAX = 20


@click.command()
@click.argument("destination", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "-b", "--broker", shell_complete=complete_brokers, help="Name of the broker. Needed if there are several."
)
@click.option(
    "--verify", "verifies", is_flag=True, help="Back up nothing: check that the backup is complete and sound."
)
@printed
@cluster_options
def command(
    destination: Path, broker: str | None, verifies: bool, namesrv: str, timeout: float
) -> Rows | Result:
    """Back up a running broker into the folder DESTINATION: messages, topics, groups, offsets, schedules.

    \b
    rmqpy backup backups/broker-a
    rmqpy backup backups/broker-a --broker broker-a
    rmqpy backup backups/broker-a --verify

    A further run into the same folder copies only the new part of the log, and continues after an interruption. The
    backup has every message that the broker had acknowledged when the run began. It never counts as a slave.

    With access control, the user must be a super user. Users and rules go into access.json without secrets. Settings
    such as broker.conf are not copied. --verify compares checksums, then the store with its log; exit code 1 if
    something is damaged.
    """
    if verifies:
        return _verified(destination)
    from rmqpy.backup.run import back_up

    with terminal.progress("backup") as show:
        work = back_up(client_config(namesrv, timeout), broker, destination, partial(show_phase, show), note)
        done = asyncio.run(work)
    found = done.manifest
    if found.access_fault is not None:
        note(f"users and rules are not in the backup: {found.access_fault}")
    elif found.users:
        note(f"{found.users} users are in access.json without their secrets")
    return {
        "broker": found.broker,
        "destination": str(destination),
        "new": done.is_new,
        "log_begin": found.log_begin,
        "log_end": found.log_end,
        "copied_bytes": done.copied,
        "copy_seconds": round(done.log_seconds, 2),
        "files": len(found.files),
        "users": found.users,
        "rules": found.rules,
        "seconds": round(done.seconds, 2),
    }


def _verified(backup: Path) -> Result:
    from rmqpy.backup.restore import verify

    with terminal.progress("checksums") as show:
        found = verify(backup, partial(show_phase, show), lambda store, work: watched(store, "verify", work))
    manifest, report = found.manifest, found.report
    for sentence in found.damage[:_SHOWN_MAX]:
        note(sentence)
    for finding in report["findings"] if report else ():
        if finding["is_damage"]:
            where = finding["path"] + ("" if finding["at"] is None else f" at {finding['at']}")
            note(f"damage: {finding['kind']}: {where}: {finding['text']}")
    row = {
        "broker": manifest.broker,
        "ended_at": manifest.ended_at,
        "log_begin": manifest.log_begin,
        "log_end": manifest.log_end,
        "files": len(manifest.files),
        "different_files": len(found.damage),
        "records": None if report is None else report["records"],
        "damage": None if report is None else report["damage"],
        "sound": found.is_sound,
    }
    return Result(row, 0 if found.is_sound else 1)


def show_phase(show: terminal.Show, phase: str, done: int, total: int) -> None:
    """Show the progress of one phase of a backup or a restore."""
    show(done, total, lambda: f"{phase}: {done >> 20:,} of {total >> 20:,} MiB")
