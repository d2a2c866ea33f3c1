"""Destructive commands ask first, and servers keep one super user."""

import io
import json
from collections.abc import Iterator
from importlib import import_module

import click
import pytest

import rmqpy
from commandline import Run, runner
from rmqpy.cli import COMMANDS
from rmqpy.cli.destroying import QUESTIONS
from rmqpy.server import Standalone
from rmqpy.testing import broker

#: Words of commands that delete something permanently.
DESTROYING_WORDS = {"alter", "clone", "delete", "purge", "reset", "resend", "skip"}
#: Commands with these words that delete nothing: a resettable setting, an extra message for a group.
HARMLESS = {"group alter", "message resend"}


def commands() -> Iterator[tuple[str, click.Command]]:
    def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
        if isinstance(command, click.Group):
            for name, each in command.commands.items():
                yield from walk(each, f"{path} {name}")
        else:
            yield path, command

    for name in COMMANDS:
        yield from walk(import_module(f"rmqpy.cli.{name}").command, name)


def test_the_table_of_questions_has_every_command_that_destroys() -> None:
    found = dict(commands())
    assert set(found) >= set(QUESTIONS)
    assert {name for name, each in found.items() if any("--yes" in one.opts for one in each.params)} == set(
        QUESTIONS
    )
    assert {name for name in found if name.rpartition(" ")[2] in DESTROYING_WORDS} - HARMLESS <= set(
        QUESTIONS
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    first = json.dumps({"username": "root", "password": "root-secret"})
    with broker(
        authenticationEnabled=True, authorizationEnabled=True, initAuthenticationUser=first
    ) as server:
        yield server


@pytest.fixture
def run(server: Standalone, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setenv("RMQPY_ACCESS_KEY", "root")
    monkeypatch.setenv("RMQPY_SECRET_KEY", "root-secret")
    run = runner(server.namesrv, monkeypatch, capfd)
    run("acl", "user", "create", "ann", "--secret", "ann-secret")
    run("acl", "rule", "set", "ann", "Topic:orders", "Pub")
    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("acl", "user", "delete", "ann"),
        ("acl", "user", "update", "ann", "--disable"),
        ("acl", "rule", "delete", "ann", "Topic:orders"),
        ("acl", "rule", "delete", "ann"),
    ],
    ids=" ".join,
)
def test_users_and_rules_are_kept_without_confirmation(
    run: Run, server: Standalone, arguments: tuple[str, ...]
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "ann" in err
    assert "give --yes" in err
    config = rmqpy.ClientConfig(namesrv=server.namesrv, credentials=rmqpy.Credentials("root", "root-secret"))
    with rmqpy.Admin(config) as admin:
        assert {(each.name, each.is_enabled) for each in admin.users()} == {("ann", True), ("root", True)}
        assert [each.resource for each in admin.rules("broker-a")] == ["Topic:orders"]
    assert run(*arguments, "--yes")[0] == 0
    assert run("acl", "user", "update", "ann", "--enable")[0] in (0, 5)


@pytest.mark.parametrize(
    "arguments", [("delete", "root"), ("update", "root", "--disable")], ids=["delete", "disable"]
)
def test_the_last_super_user_stays(run: Run, arguments: tuple[str, ...]) -> None:
    code, _, err = run("acl", "user", *arguments, "--yes")
    assert code != 0
    assert "last enabled super user" in err
    assert run("topic", "list")[0] == 0
    assert run("acl", "user", "create", "second", "--super", "--secret", "second-secret")[0] == 0
    assert run("acl", "user", "update", "second", "--disable", "--yes")[0] == 0
    # A disabled one does not count.
    assert run("acl", "user", *arguments, "--yes")[0] != 0
    assert run("acl", "user", "delete", "second", "--yes")[0] == 0


def test_a_promotion_that_may_lose_messages_asks(run: Run) -> None:
    code, _, err = run("cluster", "promote", "broker-a", "--id", "1", "--force")
    assert (code, "lose the messages that it lacks?" in err) == (2, True)


def test_a_change_of_a_user_without_a_setting_is_a_usage_error(run: Run) -> None:
    code, _, err = run("acl", "user", "update", "ann")
    assert (code, "nothing to change" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("ann", "Nothing", "Topic:orders"), "Pub"),
        (("ann", "Pub", "orders"), "Topic:"),
        (("ann", "Pub", "Foo:orders"), "Topic:"),
        (("ann", "Pub", "Topic:"), "Topic:"),
        (("ann", "Pub", "Topic:orders", "--from", "garbage"), "garbage"),
        (("ann", "Pub", "Topic:orders", "--from", "10.0.0.0/8"), "10.0.0.0/8"),
        (("ann", "Pub", "Topic:orders", "--from", ""), "address"),
        # For every user.
        (("root", "Nothing", "zzz"), "Pub"),
        (("mallory", "Nothing", "Topic:orders"), "Pub"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_question_about_access_that_makes_no_sense_is_a_usage_error(
    run: Run, arguments: tuple[str, ...], told: str
) -> None:
    code, out, err = run("acl", "check", *arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err
