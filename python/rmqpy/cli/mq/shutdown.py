"""`mqshutdown`: stops servers of this user on this machine, found by their command lines.

Sends SIGTERM to every process started as `rmqpy ROLE` or by the role's own command, and does not wait for it to exit.
Servers finish received requests first. If no broker runs, the last one may have been killed: its write ring is drained.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

#: Role → its own command.
_ROLES: Final = {
    "broker": "mqbroker",
    "namesrv": "mqnamesrv",
    "controller": "mqcontroller",
    "proxy": "mqproxy",
    "standalone": "standalone",
}
_PROCESSES: Final = Path("/proc")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("role", type=click.Choice([*_ROLES]))
@click.option("--pid", type=click.IntRange(1), help="Only this process.")
@click.option(
    "-c",
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="broker.conf of a broker that may have been killed, if it names its folder.",
)
def command(role: str, pid: int | None, config: Path | None) -> int:
    """Stop all servers of a role that this user runs on this machine.

    If no broker runs, move messages that a killed one left in its write ring into the log.

    \b
    mqshutdown broker
    mqshutdown namesrv --pid 4711
    """
    name = _ROLES[role]
    found = [each for each in sorted(running(role)) if pid in (None, each)]
    if not found:
        if role == "broker" and pid is None:
            _drain(config)
        raise click.ClickException(f"No {name} running.")
    for each in found:
        click.echo(f"The {name}({each}) is running...")
        os.kill(each, signal.SIGTERM)
        click.echo(f"Send shutdown request to {name}({each}) OK")
    return 0


def _drain(config: Path | None) -> None:
    """Move messages that a killed broker left in its write ring into the log, if its store exists and is not open."""
    from rmqpy._native import StoppedStore
    from rmqpy.config.broker import load
    from rmqpy.errors import StoreError

    store = load(config, {}).config.store
    if not Path(store.folder, "rmqpy").is_dir():
        return
    try:
        stopped = StoppedStore(store, exclusive=True)
        try:
            outcome, _ = stopped.drain()
        finally:
            stopped.release()
    except StoreError as error:
        raise click.ClickException(f"No mqbroker running. Cannot drain {store.folder}: {error}") from error
    if outcome:
        click.echo(outcome)


def mqshutdown() -> None:
    """Run `mqshutdown` and exit with its code."""
    from rmqpy.cli import run_command

    sys.exit(run_command(command, "mqshutdown", None))


def running(role: str) -> Iterator[int]:
    """Processes of this user that run in this role."""
    for folder in _PROCESSES.iterdir():
        if folder.name.isdigit():
            try:
                if folder.stat().st_uid != os.getuid():
                    continue
                words = (folder / "cmdline").read_bytes().split(b"\0")[:-1]
            except OSError:
                # The process has just ended.
                continue
            if role_of([os.fsdecode(word) for word in words]) == role:
                yield int(folder.name)


def role_of(words: Sequence[str]) -> str | None:
    """Return the role of a process by its command line.

    >>> role_of(["/usr/bin/python3", "/usr/bin/rmqpy", "-v", "broker", "-c", "broker.conf"])
    'broker'
    >>> role_of(["python3", "-m", "rmqpy", "namesrv"]), role_of(["python3", "/usr/bin/mqbroker"])
    ('namesrv', 'broker')
    >>> role_of(["vi", "/home/me/rmqpy", "broker"]) is role_of(["tail", "mqbroker"]) is None
    True
    """
    if not words or not Path(words[0]).name.startswith("python"):
        return None
    # Words before the program are flags of the interpreter.
    at = next((at for at, word in enumerate(words[1:], 1) if word == "-m" or not word.startswith("-")), None)
    if at is None:
        return None
    program = words[at + 1] if words[at] == "-m" and at + 1 < len(words) else Path(words[at]).name
    for role, name in _ROLES.items():
        if program == name:
            return role
    if program != "rmqpy":
        return None
    return next((word for word in words[at + 1 :] if word in _ROLES), None)
