"""`rmqpy restore`: a data folder from a backup."""

from datetime import datetime
from functools import partial
from pathlib import Path

import click

from rmqpy.cli import terminal
from rmqpy.cli.backup import show_phase
from rmqpy.cli.command import Rows, printed
from rmqpy.cli.output import note
from rmqpy.cli.store import watched
from rmqpy.cli.values import moment


def _moment(context: click.Context, option: click.Parameter, given: str | None) -> datetime | None:
    return None if given is None else moment(given)


@click.command()
@click.argument("backup", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("data_dir", type=click.Path(path_type=Path))
@click.option(
    "--until",
    metavar="TIME|AGE",
    callback=_moment,
    help="Leave out messages stored later than this time.",
)
@click.option(
    "--incomplete",
    "allows_incomplete",
    is_flag=True,
    help="Accept a backup whose last run did not end: without checksums, as far as its log reaches.",
)
@printed
def command(backup: Path, data_dir: Path, until: datetime | None, allows_incomplete: bool) -> Rows:
    """Restore BACKUP, made by rmqpy backup, into DATA_DIR, an empty or new folder.

    \b
    rmqpy restore backups/broker-a restored
    rmqpy restore backups/broker-a yesterday --until 2026-01-31T12:00:00

    DATA_DIR is a data folder of rmqpy standalone, and DATA_DIR/store the storePathRootDir of a broker. Every file is
    compared with its checksum. Groups continue at their offsets.

    --until cuts the log before the first message that was stored later: offsets beyond are set to the end of their
    queue, and delayed messages delivered since then are delivered again.
    """
    from rmqpy.backup.restore import restore
    from rmqpy.config.store import StoreConfig

    with terminal.progress("restore") as show:
        done = restore(
            backup,
            data_dir,
            partial(show_phase, show),
            until_ms=None if until is None else int(until.timestamp() * 1_000),
            allows_incomplete=allows_incomplete,
            watch=lambda store, work: watched(store, "cut", work),
            note=note,
        )
    found = done.manifest
    default = StoreConfig().write()
    if changed := [f"{key}={value}" for key, value in found.settings.items() if default.get(key) != value]:
        note(f"start it with these settings of the broker: {' '.join(changed)}")
    if found.users or found.rules:
        note(
            f"{found.users} users and {found.rules} rules are in {backup / 'access.json'}: create them again"
        )
    note(f"serve it with: rmqpy standalone --data-dir {data_dir}")
    return {
        "broker": found.broker,
        "data_dir": str(data_dir),
        "backed_up_at": found.ended_at,
        "log_begin": found.log_begin,
        "log_end": done.log_end,
        "cut_bytes": done.cut,
    }
