"""`rmqpy acl`: init, migrate; user list, create, update, delete; rule list, set, delete; check."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqpy.cli import COMMANDS
from rmqpy.cli.command import (
    Result,
    Rows,
    check_given,
    cluster_command,
    columns,
    confirm,
    confirmed,
    yes_option,
)
from rmqpy.cli.options import complete_brokers

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin


command = click.Group("acl", help=COMMANDS["acl"])
user = click.Group("user", help="Users: list, create, update, delete.")
rule = click.Group("rule", help="Policies: list, set, delete.")
command.add_command(user)
command.add_command(rule)

_BROKER = click.option("-b", "--broker", shell_complete=complete_brokers, help="Only on this broker.")
_SECRET = click.option(
    "--secret",
    envvar="RMQPY_NEW_SECRET",
    show_envvar=True,
    help="Prompted for on a terminal if missing.",
)


def _named(brokers: list[str]) -> Rows:
    return [{"broker": name} for name in brokers]


def _asked(secret: str | None) -> str:
    return secret or str(click.prompt("Secret", hide_input=True, confirmation_prompt=True, err=True))


@command.command()
@click.argument("name")
@_SECRET
@cluster_command
def init(admin: "Admin", name: str, secret: str | None) -> Rows:
    """Make NAME the first super user, before authenticationEnabled is set.

    \b
    rmqpy acl init root
    """
    return _named(admin.create_user(name, _asked(secret), is_super=True))


@command.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@_BROKER
@cluster_command
@columns("broker", "user", "is_super", "entries", "is_made")
def migrate(admin: "Admin", files: tuple[Path, ...], broker: str | None) -> Rows:
    """Create users and policies from the accounts in FILES: plain_acl.yml and files of conf/acl.

    Existing users stay unchanged. Address white lists have no counterpart: requests from there must be signed.

    \b
    rmqpy acl migrate conf/plain_acl.yml
    """
    from rmqpy.config import text
    from rmqpy.errors import ConfigError
    from rmqpy.protocol import plain_acl

    accounts: list[plain_acl.PlainAccount] = []
    lists: list[str] = []
    for path in files:
        try:
            found = plain_acl.read(text.decode(path.read_bytes()))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
        accounts += found.accounts
        lists += [
            *found.white_addresses,
            *(each.white_address for each in found.accounts if each.white_address),
        ]
        for remark in found.remarks:
            click.echo(f"{path}: {remark}", err=True)
    if lists:
        click.echo(f"white list not migrated, sign requests from: {', '.join(lists)}", err=True)
    return [each._asdict() for each in admin.migrate_accounts(accounts, broker=broker)]


@user.command("list")
@_BROKER
@cluster_command
@columns("broker", "user", "super", "enabled")
def list_users(admin: "Admin", broker: str | None) -> Rows:
    """List the users of the brokers, without their secrets.

    \b
    rmqpy acl user list
    """
    return [
        {"broker": each.broker, "user": each.name, "super": each.is_super, "enabled": each.is_enabled}
        for each in admin.users(broker)
    ]


@user.command("create")
@click.argument("name")
@_SECRET
@click.option("--super", "is_super", is_flag=True, help="May do everything.")
@_BROKER
@cluster_command
def create_user(admin: "Admin", name: str, secret: str | None, is_super: bool, broker: str | None) -> Rows:
    """Create a user.

    \b
    rmqpy acl user create carol
    """
    return _named(admin.create_user(name, _asked(secret), is_super=is_super, broker=broker))


@user.command("update")
@click.argument("name")
@click.option("--new-secret", is_flag=True, help="Prompt for a new secret, or take --secret.")
@_SECRET
@click.option("--enable/--disable", "is_enabled", default=None, help="Enable or disable the user.")
@_BROKER
@yes_option
@cluster_command
def update_user(
    admin: "Admin",
    name: str,
    new_secret: bool,
    secret: str | None,
    is_enabled: bool | None,
    broker: str | None,
    yes: bool,
) -> Rows:
    """Change a user. Open connections see it immediately. Asks before disabling one.

    \b
    rmqpy acl user update alice --disable --yes
    """
    given = _asked(secret) if new_secret else secret
    check_given({"secret": given, "is_enabled": is_enabled})
    if is_enabled is False and not yes:
        confirm(name=name)
    return _named(admin.update_user(name, secret=given, is_enabled=is_enabled, broker=broker))


@user.command("delete")
@click.argument("name")
@_BROKER
@confirmed
@cluster_command
def delete_user(admin: "Admin", name: str, broker: str | None) -> Rows:
    """Delete a user and its policies.

    \b
    rmqpy acl user delete alice --yes
    """
    return _named(admin.delete_user(name, broker=broker))


@rule.command("list")
@_BROKER
@cluster_command
@columns("broker", "user", "kind", "resource", "actions", "sources", "decision")
def list_rules(admin: "Admin", broker: str | None) -> Rows:
    """List the entries of all policies.

    \b
    rmqpy acl rule list
    """
    return [each._asdict() for each in admin.rules(broker)]


@rule.command("set")
@click.argument("name", metavar="USER")
@click.argument("resource")
@click.argument("actions", nargs=-1, required=True)
@click.option("--deny", is_flag=True, help="Deny instead of allow.")
@click.option("--from", "sources", multiple=True, metavar="ADDRESS", help="Only from this address or block.")
@_BROKER
@cluster_command
def set_rule(
    admin: "Admin",
    name: str,
    resource: str,
    actions: tuple[str, ...],
    deny: bool,
    sources: tuple[str, ...],
    broker: str | None,
) -> Rows:
    """Allow or deny ACTIONS on RESOURCE, replacing an earlier entry on it.

    \b
    rmqpy acl rule set alice 'Topic:ord*' Pub
    """
    decision = "Deny" if deny else "Allow"
    return _named(admin.set_rule(name, resource, actions, decision=decision, sources=sources, broker=broker))


@rule.command("delete")
@click.argument("name", metavar="USER")
@click.argument("resource", required=False)
@_BROKER
@yes_option
@cluster_command
def delete_rule(admin: "Admin", name: str, resource: str | None, broker: str | None, yes: bool) -> Rows:
    """Delete the entry on RESOURCE, or all entries of USER.

    \b
    rmqpy acl rule delete alice 'Topic:ord*' --yes
    """
    if not yes:
        confirm(name=name, what=f"the entry on {resource!r}" if resource else "all policies")
    return _named(admin.delete_rule(name, resource, broker=broker))


@command.command()
@click.argument("name", metavar="USER")
@click.argument("action")
@click.argument("resource")
@click.option(
    "--from", "source", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where from."
)
@_BROKER
@cluster_command
def check(admin: "Admin", name: str, action: str, resource: str, source: str, broker: str | None) -> Result:
    """Check whether USER may do ACTION on RESOURCE, and by which entry. Exit code 1 if not.

    \b
    rmqpy acl check alice Pub Topic:orders --from 10.0.0.7
    """
    answers = admin.check_access(name, action, resource, source, broker=broker)
    rows = [{"broker": each.broker, "allowed": each.is_allowed, "rule": each.rule} for each in answers]
    return Result(rows, 0 if all(each.is_allowed for each in answers) else 1)
