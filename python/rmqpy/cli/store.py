"""`rmqpy store`: verify, dump, stats, compare, index-rebuild, copy, drain. The store must not be open in a broker."""

import contextlib
import functools
import shutil
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from rmqpy.cli.command import Result, Rows, columns, printed
from rmqpy.cli.options import options
from rmqpy.cli.output import (
    RECORD_COLUMNS,
    Format,
    Record,
    message_line,
    message_record,
    ms_text,
    note,
    output_option,
    show,
)
from rmqpy.cli.settings import config_option, settings_argument
from rmqpy.cli.terminal import progress
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    from rmqpy._native import ReceivedMessage, StoppedStore

_Result = TypeVar("_Result")

#: Records of a dump in memory at a time.
_PAGE = 1024
_PROGRESS_SECONDS = 0.2
#: Greater than every position and offset.
_END = 2**63 - 1
_WORD_OF = {True: "damage", False: "note"}


def _span(text: str) -> tuple[int, int]:
    """Parse `A:B`, from A up to but without B; either may be left out."""
    begin, colon, end = text.partition(":")
    try:
        span = (int(begin or 0), int(end) if end else _END)
    except ValueError:
        colon = ""
    if not colon or not (0 <= span[0] <= span[1] <= _END):
        raise click.BadParameter(f"{text!r} is not A:B, A: or :B")
    return span


_DUMP_COLUMNS: Final = (
    "position",
    *(name for name in RECORD_COLUMNS if name != "broker"),
    *("flag", "sys_flag", "attempt", "born_host", "store_host"),
)


@click.group()
def command() -> None:
    """Inspect a store that no broker has open, Apache's or rmqpy's.

    PATH is the storePathRootDir of the broker, or the data folder of a standalone server. Folders elsewhere are found
    where rmqpy last had them; for an Apache broker add storePathCommitLog=FOLDER and the like, or -c broker.conf. Only
    these commands write: index-rebuild to the index, copy to the other folder, drain to the log.
    """


class _Opened(NamedTuple):
    """The store at PATH, locked against brokers while the command runs."""

    native: "StoppedStore"
    #: The path as given, and the root of the store there.
    path: Path
    root: Path


def with_store(
    *, exclusive: bool = False, tells_ring: bool = False, has_other: bool = False
) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Add PATH and the settings of the broker that wrote it, and pass the `store` there to the command.

    A note says when messages in the write ring may be missing from the log, unless the command `tells_ring` itself.
    With `has_other` the command gets a second store, at OTHER, with the same settings.
    """
    path_type = click.Path(exists=True, file_okay=False, path_type=Path)
    paths = [click.argument(name, type=path_type) for name in (["path", "other"] if has_other else ["path"])]

    def decorate(command: Callable[..., _Result]) -> Callable[..., _Result]:
        @options(
            config_option("broker.conf, if it sets file sizes: maxHashSlotNum, maxIndexNum, …"),
            *paths,
            settings_argument(),
        )
        @functools.wraps(command)
        def run(
            path: Path, config: Path | None, settings: dict[str, str], other: Path | None = None, **given: Any
        ) -> _Result:
            from rmqpy._native import StoppedStore
            from rmqpy.config.broker import load
            from rmqpy.config.folders import root_of

            with contextlib.ExitStack() as held:

                def hold(path: Path) -> _Opened:
                    root = root_of(path)
                    written_by = load(config, settings | {"storePathRootDir": str(root)}).config
                    native = StoppedStore(written_by.store, exclusive=exclusive)
                    held.callback(native.release)
                    if not tells_ring and (undrained := native.undrained_bytes()):
                        note(
                            f"{undrained} bytes in the write ring may not be in the log: see rmqpy store drain"
                        )
                    return _Opened(native, path, root)

                if other is not None:
                    given["other"] = hold(other)
                return command(store=hold(path), **given)

        return run

    return decorate


@command.command()
@with_store(tells_ring=True)
@output_option
def verify(store: _Opened, output: Format) -> int:
    """Compare all files of the store at PATH with its log. Exit code 1 if something is damaged.

    \b
    rmqpy store verify data
    rmqpy store verify data -c broker.conf -o json

    A note is information, or an effect of a crash that the next start repairs.
    """
    from rmqpy.control.topics.existing import existing_topics

    topics = existing_topics(store.root)
    report = watched(store.native, "verify", lambda: store.native.verify(topics))
    findings = report.pop("findings")
    if output == "json":
        show({**report, "findings": findings}, output)
    elif output == "jsonl":
        show([*findings, report], output)
    else:
        show(report, output)
        for finding in findings:
            where = finding["path"] + ("" if finding["at"] is None else f" at {finding['at']}")
            click.echo(f"{_WORD_OF[finding['is_damage']]}: {finding['kind']}: {where}: {finding['text']}")
        listed = sum(finding["is_damage"] for finding in findings)
        click.echo(
            "clean" if not report["damage"] else f"{report['damage']} damages, {listed} of them listed"
        )
    return 1 if report["damage"] else 0


@command.command()
@with_store()
@click.option("--topic", help="Only records stored under this topic.")
@click.option("--queue", type=click.IntRange(0), help="Only this queue.")
@click.option("--offsets", type=_span, metavar="A:B", help="Only these offsets of their queues.")
@click.option(
    "--positions", type=_span, metavar="A:B", default=":", help="Only this part of the log, in bytes."
)
@click.option("--count", type=click.IntRange(1), help="Records at most.")
@output_option
def dump(
    store: _Opened,
    topic: str | None,
    queue: int | None,
    offsets: tuple[int, int] | None,
    positions: tuple[int, int],
    count: int | None,
    output: Format,
) -> int:
    """Print records of the store at PATH in log order. Exit code 1 if part of it cannot be read.

    \b
    rmqpy store dump data --topic orders --queue 3 --offsets 100:200 -o jsonl
    """
    rows: list[Record] = []
    gaps = 0
    begin: int | None = positions[0]
    read = 0
    while begin is not None and read != count:
        page = _PAGE if count is None else min(_PAGE, count - read)
        found = store.native.records(
            begin, positions[1], topic=topic, queue_id=queue, offsets=offsets, count=page
        )
        messages, begin = found.messages, found.next
        if output in ("json", "csv"):
            rows += map(_row, messages)
        else:
            show([_line(each) if output == "table" else _row(each) for each in messages], output)
        read += len(messages)
        for gap in found.invalid:
            note(f"no record from {gap.begin} to {gap.end}: {gap.reason}")
        gaps += len(found.invalid)
    if output in ("json", "csv"):
        show(rows, output, columns=_DUMP_COLUMNS)
    return 1 if gaps else 0


@command.command()
@with_store()
@printed
@columns("topic", "queues", "messages", "bytes", "body_bytes", "first_stored", "last_stored")
def stats(store: _Opened) -> Rows:
    """Count the records of every topic in the log of the store at PATH.

    \b
    rmqpy store stats data
    """
    topics = watched(store.native, "stats", store.native.stats)
    return [
        {
            "topic": topic,
            "queues": counts.queues,
            "messages": counts.records,
            "bytes": counts.bytes,
            "body_bytes": counts.body_bytes,
            "first_stored": ms_text(counts.oldest_ms),
            "last_stored": ms_text(counts.newest_ms),
        }
        for topic, counts in sorted(topics.items())
    ]


@command.command()
@with_store(has_other=True)
@printed
def compare(store: _Opened, other: _Opened) -> Result:
    """Compare the log of the store at PATH with that at OTHER byte by byte, as of a master and its slave. Exit code 1
    if they differ.

    \b
    rmqpy store compare master slave

    Both logs are equal up to equal_until. If differs_at is given, it is the first byte that differs, and file names its
    place; otherwise one log ends there. Earlier parts that only one log has are not compared.
    """
    found = watched(store.native, "compare", lambda: store.native.compare(other.native))
    difference = found.difference
    row: Record = {
        "begin": found.begin,
        "end": found.end,
        "other_begin": found.other_begin,
        "other_end": found.other_end,
        "equal_until": found.common_end if difference is None else difference,
        "differs_at": difference,
        "file": None if difference is None else _file_of(store.root, difference),
    }
    return Result(row, 0 if difference is None and found.end == found.other_end else 1)


def _file_of(root: Path, position: int) -> str | None:
    """The log file that has a byte, and the position in it."""
    files = [path for path in (root / "commitlog").glob("[0-9]*") if int(path.name) <= position]
    return f"{max(files).name}+{position - int(max(files).name)}" if files else None


@command.command("index-rebuild")
@with_store(exclusive=True)
@printed
def index_rebuild(store: _Opened) -> Rows:
    """Rebuild the index of the store at PATH from its log. The new index replaces the old once it is on disk.

    \b
    rmqpy store index-rebuild data
    """
    records = watched(store.native, "index-rebuild", store.native.rebuild_index)
    return {"path": str(store.native.index_folder), "records": records}


@command.command()
@with_store(exclusive=True, tells_ring=True)
@printed
def drain(store: _Opened) -> Result:
    """Move messages that a killed broker left in its write ring into the log of the store at PATH. Exit code 1 if a
    part does not continue the log; its files are kept in rmqpy/ring-aside.

    \b
    rmqpy store drain data

    The next start of rmqpy does the same; an Apache broker does not read the write ring.
    """
    outcome, is_complete = store.native.drain()
    return Result(
        {"path": str(store.root), "outcome": outcome or "the write ring was empty"}, 0 if is_complete else 1
    )


@command.command()
@with_store()
@click.option(
    "--to", "target", type=click.Path(path_type=Path), required=True, help="An empty or new folder."
)
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@printed
def copy(store: _Opened, target: Path, topics: tuple[str, ...]) -> Result:
    """Copy the undamaged records of the store at PATH, and the tables of settings, to a new store.

    \b
    rmqpy store copy data --to copy
    rmqpy store copy data --to orders-only --topic orders

    The copy of a data folder is a data folder, the copy of a store a store; the last line says how to serve it.

    Topic, queue, offset, times, keys, properties and body of records stay the same, and groups continue at their
    offsets. Positions in the log change, and with them the ids that contain positions. Exit code 1 if bytes were left
    out because they are not a complete record.
    """
    from rmqpy.config.folders import NAME_SERVER, STORE

    is_data_folder = store.root != store.path
    if is_data_folder and target.is_dir() and any(target.iterdir()):
        raise ConfigError(f"{target} is not empty", hint="name an empty folder, or a new one")
    root = target / STORE if is_data_folder else target
    copied = watched(store.native, "copy", lambda: store.native.copy(root.absolute(), topics=topics or None))
    if is_data_folder and (tables := store.path / NAME_SERVER).is_dir():
        shutil.copytree(tables, target / NAME_SERVER)
    command = f"standalone --data-dir {target}" if is_data_folder else f"broker storePathRootDir={target}"
    note(f"serve it with: rmqpy {command}")
    return Result({"path": str(target), **copied}, 1 if copied["gaps"] else 0)


def watched(store: "StoppedStore", name: str, work: Callable[[], _Result]) -> _Result:
    """Return the result of `work`, and show its progress on a terminal."""
    if not sys.stderr.isatty():
        return work()
    outcome: list[_Result | BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    # A daemon thread, so that Ctrl-C need not wait: a partial result is as safe as after a crash.
    worker = threading.Thread(target=run, name="rmqpy-store", daemon=True)
    worker.start()
    began = time.monotonic()
    with progress(name) as show_progress:
        while worker.is_alive():
            worker.join(_PROGRESS_SECONDS)
            done, total = store.progress()
            show_progress(done, total, partial(_figures, done, total, time.monotonic() - began))
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    return result


def _figures(done: int, total: int, seconds: float) -> str:
    """
    >>> _figures(1 << 30, 4 << 30, 2.0)
    '25 % of 4096 MiB, 512 MiB/s'
    """
    percent = done * 100 // total if total else 100
    return f"{percent} % of {total >> 20} MiB, {int(done / seconds) >> 20 if seconds else 0} MiB/s"


def _row(message: "ReceivedMessage") -> dict[str, Any]:
    return {
        "position": message.commit_log_offset,
        # As stored: a message that a consumer returned is in the retry topic of its group.
        **{name: value for name, value in message_record(message).items() if name != "broker"},
        "topic": message.queue.topic,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "attempt": message.delivery_attempt,
        "born_host": message.born_host,
        "store_host": message.store_host,
    }


def _line(message: "ReceivedMessage") -> dict[str, Any]:
    line = {"position": message.commit_log_offset, "topic": message.queue.topic, **message_line(message)}
    del line["broker"]
    return line
