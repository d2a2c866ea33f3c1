"""`rmqpy completion`: the script for shell completion of commands, topics and groups."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL. Topics, groups and brokers come from the cluster of $NAMESRV_ADDR.

    \b
    rmqpy completion bash
    """
    from rmqpy.cli import root

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    click.echo(kind(root, {}, "rmqpy", "_RMQPY_COMPLETE").source())
