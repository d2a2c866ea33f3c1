"""Command line: one module per command family, imported when the command runs.

Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 usage, 3 cannot connect or timed
out, 4 not found, 5 denied, 130 interrupted, 141 broken output pipe, 143 terminated. The client and the servers are
imported only by commands that need them: `rmqpy --version` loads little more than click.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from rmqpy.cli.options import flag, global_options

#: The exit code for a broken pipe: 128 and the number of SIGPIPE, as shells report it.
READER_GONE = 141

#: Command → its line in `rmqpy --help`. Each is a click command called `command` in a module of that name.
COMMANDS = {
    "standalone": "Run a name server and a broker in one process.",
    "namesrv": "Run a name server.",
    "broker": "Run a broker, configured like Apache's: broker.conf and KEY=VALUE.",
    "proxy": "Serve 5.x clients (gRPC) in front of a cluster, rmqpy's or Apache's.",
    "dashboard": "Serve the web console of a cluster, rmqpy's or Apache's.",
    "controller": "Run a controller, which elects the masters of brokers.",
    "produce": "Send messages from an argument, standard input or a file.",
    "consume": "Print the messages of a topic.",
    "sql": "Query topics by SQL, with DuckDB.",
    "archive": "Archive a topic in Parquet, Delta or Iceberg, exactly once.",
    "backup": "Back up a running broker into a folder, and verify it.",
    "restore": "Restore a broker's data from a backup, on request up to a time.",
    "replay": "Send the stored messages of a topic again, at their pace or faster.",
    "topic": "Topics: list, describe, traffic, settings; create, change, delete.",
    "group": "Consumer groups: settings, members, lag; watch, reset, skip, clone.",
    "message": "Messages: get by id, find by key or time, trace, resend, export.",
    "dlq": "Dead letters: list, show, export, resend, purge.",
    "schedule": "Messages at times of a calendar: create, list, pause, resume, delete.",
    "cluster": "The brokers of a cluster: state and health.",
    "client": "Connected producers and consumers: list, thread stacks.",
    "acl": "Users and policies: list, create, update, delete, check.",
    "config": "Settings of running servers and files: get, set, diff, validate.",
    "doctor": "Check the health of the cluster and this machine, with advice.",
    "store": "A stopped store, Apache's or rmqpy's: verify, dump, stats, compare, copy.",
    "mcp": "Serve tools for an assistant, by the Model Context Protocol.",
    "bench": "Measure a broker: throughput, latency, processor time.",
    "profile": "List the profiles of your clusters.",
    "completion": "Print the shell completion script.",
    "version": "Show the versions of rmqpy and its platform.",
}


#: Commands that run a server and print little.
_SERVERS = frozenset({"standalone", "namesrv", "broker", "controller", "proxy", "dashboard"})


class _Lazy(click.Group):
    """A group that imports a command when it is run or asked for help, not to list it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"rmqpy.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 1)
            ctx.fail(f"no command {args[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@global_options
@click.version_option(package_name="rmqpy", prog_name="rmqpy")
@click.pass_context
def root(context: click.Context) -> None:
    """RocketMQ without the JVM.

    \b
    rmqpy topic list -n 10.0.0.1:9876
    rmqpy -n 10.0.0.1:9876 -o json topic list

    All options except -q, -v and --no-color may also follow the command, where they take precedence.
    """
    if context.invoked_subcommand in _SERVERS:
        from rmqpy.cli.process import discard_output

        discard_output()
    if flag("verbose"):
        from rmqpy.monitor.logs import install

        install("text", "debug")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one `rmqpy` command and return its exit code."""
    return run_command(root, "rmqpy", arguments)


def run_command(command: click.Command, name: str, arguments: Sequence[str] | None) -> int:
    """Run a command and return its exit code. Errors are printed in one line, never as a traceback."""
    from rmqpy.cli.process import flush_output, open_streams

    with open_streams():
        code = _run(command, name, arguments)
        try:
            flush_output()
        except BrokenPipeError:
            return code or READER_GONE
        except OSError as error:
            if code == 0:
                code = _failed(error)
        return code


def _run(command: click.Command, name: str, arguments: Sequence[str] | None) -> int:
    from rmqpy.cli.process import TERMINATED, Terminated, printable, terminable

    stdout = sys.stdout
    try:
        with printable(), terminable():
            result = command.main(
                list(arguments) if arguments is not None else None, name, standalone_mode=False
            )
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        is_terminated = isinstance(error, Terminated) or isinstance(error.__cause__, Terminated)
        click.echo("terminated" if is_terminated else "interrupted", err=True)
        return TERMINATED if is_terminated else 130
    except SystemExit:
        # Raised by click, which replaces stdout on a broken pipe: `| head` has read enough.
        if sys.stdout is not stdout:
            return READER_GONE
        raise
    except Exception as error:
        return _failed(error)
    return result if isinstance(result, int) else 0


def _failed(error: Exception) -> int:
    """Print an error in one line and return its exit code. An unexpected error is raised again."""
    from rmqpy.cli.exits import error_line, exit_code

    if (code := exit_code(error)) is None:
        raise error
    click.echo(f"Error: {error_line(error)}", err=True)
    return code
