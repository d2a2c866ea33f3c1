"""Addresses of name servers from options, environment and profiles, and names for shell completion."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import BashComplete

import rmqpy
from commandline import Run, runner
from rmqpy import cli
from rmqpy.server import Standalone
from rmqpy.testing import broker

#: No server listens there.
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    run = runner("", monkeypatch, capfd)
    monkeypatch.delenv("NAMESRV_ADDR")
    return run


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`write(text)`: the file of profiles."""
    file = tmp_path / "profiles.toml"
    monkeypatch.setenv("RMQPY_PROFILES", str(file))
    return lambda text: file.write_text(text, encoding="utf-8")


def test_an_option_wins_over_the_environment_and_that_over_a_profile(
    run: Run, write: Any, server: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(f'[profile.here]\nnamesrv = "{server.namesrv}"\n[profile.nowhere]\nnamesrv = "{NOWHERE}"\n')
    assert run("topic", "list", "-p", "here")[0] == 0
    assert run("topic", "list", "-p", "nowhere")[0] == 3
    assert run("topic", "list", "-p", "nowhere", "-n", server.namesrv)[0] == 0
    monkeypatch.setenv("RMQPY_PROFILE", "nowhere")
    assert run("topic", "list")[0] == 3
    monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
    assert run("topic", "list")[0] == 0
    assert run("topic", "list", "-n", NOWHERE)[0] == 3


def test_options_may_stand_before_the_command_and_those_behind_it_win(
    run: Run, write: Any, server: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(f'[profile.here]\nnamesrv = "{server.namesrv}"\n[profile.nowhere]\nnamesrv = "{NOWHERE}"\n')
    monkeypatch.setenv("NAMESRV_ADDR", NOWHERE)
    code, out, _ = run("-n", server.namesrv, "-o", "json", "topic", "list")
    assert (code, isinstance(json.loads(out), list)) == (0, True)
    assert run("-n", NOWHERE, "topic", "list", "-n", server.namesrv)[0] == 0
    assert run("-n", server.namesrv, "topic", "list", "-n", NOWHERE)[0] == 3
    assert not run("-n", server.namesrv, "-o", "json", "topic", "list", "-o", "csv")[1].startswith("[")
    monkeypatch.delenv("NAMESRV_ADDR")
    monkeypatch.setenv("RMQPY_PROFILE", "nowhere")
    assert run("-p", "here", "topic", "list")[0] == 0
    assert run("-p", "here", "topic", "list", "-p", "nowhere")[0] == 3


def test_a_namespace_is_that_of_an_option_of_the_environment_or_of_a_profile(
    run: Run, write: Any, server: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('[profile.shop]\nnamespace = "shop"\n')
    monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)

    def topics(*options: str) -> set[str]:
        code, out, _ = run("topic", "list", "-o", "json", *options)
        assert code == 0
        return {row["topic"] for row in json.loads(out)}

    assert run("--namespace", "shop", "topic", "create", "orders")[0] == 0
    assert run("produce", "orders", "hello", "-p", "shop")[0] == 0
    assert run("consume", "orders", "-p", "shop")[:2] == (0, "hello\n")
    assert topics() == {"shop%orders"}
    for options in (("--namespace", "shop"), ("-p", "shop")):
        assert topics(*options) == {"orders"}
    assert topics("--namespace", "other") == set()
    monkeypatch.setenv("RMQPY_NAMESPACE", "other")
    assert topics() == topics("-p", "shop") == set()
    assert topics("--namespace", "shop") == {"orders"}
    assert run("bench", "produce", "loads", "-d", "0.1", "--warm-up", "0", "--namespace", "shop")[0] == 0
    assert topics("--namespace", "shop") == {"orders", "loads"}
    assert run("topic", "list", "--namespace", "a%b")[0] == 2


def test_reading_in_a_namespace_needs_no_group_of_it(run: Run) -> None:
    with broker(autoCreateSubscriptionGroup=False) as server:
        place = ("-n", server.namesrv, "--namespace", "shop")
        assert run("topic", "create", "orders", *place)[0] == 0
        assert run("produce", "orders", "hello", *place)[0] == 0
        assert run("consume", "orders", *place)[:2] == (0, "hello\n")
        assert [
            row["body"] for row in json.loads(run("topic", "tail", "orders", "-o", "json", *place)[1])
        ] == ["hello"]


@pytest.mark.usefixtures("log")
def test_quiet_prints_only_results_and_verbose_adds_requests(
    run: Run, write: Any, server: Standalone
) -> None:
    write("")
    assert "profiles.toml" in run("profile")[2]
    assert run("-q", "profile") == (0, "", "")
    code, _, err = run("-v", "topic", "list", "-n", server.namesrv)
    assert (code, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER" in err, "code 0" in err) == (0, True, True)
    for count in (1, 2):
        told = run("-v", "produce", "shown", "x", "--count", str(count), "-n", server.namesrv)[2]
        assert len(re.findall(r"SEND_MESSAGE: SEND_OK, MessageQueue\(topic='shown', .* bytes", told)) == count
    told = run("-v", "consume", "shown", "-n", server.namesrv)[2]
    assert re.search(r"PULL_MESSAGE of \S+: MessageQueue\(topic='shown'.* at 0: MESSAGES, next \d", told)
    assert "_FROM_NAMESERVER of 127.0.0.1:1: no answer" in run("-v", "topic", "list", "-n", NOWHERE)[2]


def test_a_program_takes_its_configuration_from_a_profile(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "c:3")
    write('[profile.a]\nnamesrv = "a:1;b"\ntimeout = 5\nnamespace = "s"\n[profile.b]\n')
    config = rmqpy.ClientConfig.from_profile("a")
    assert (config.namesrv, config.connect_timeout, config.request_timeout) == (("a:1", "b:9876"), 5, 5)
    assert config.namespace == "s"
    assert rmqpy.ClientConfig.from_profile("b") == rmqpy.ClientConfig(namesrv="c:3")
    with pytest.raises(rmqpy.errors.ConfigError, match="known profiles: a, b"):
        rmqpy.ClientConfig.from_profile("c")


def test_profiles_are_listed(run: Run, write: Any) -> None:
    write(
        '[profile.b]\ntimeout = 5\nnamespace = "shop"\naccess_key = "alice"\nsecret_key = "hidden"\n'
        '[profile.a]\nnamesrv = "x:1"\n'
    )
    code, out, err = run("profile", "-o", "json")
    assert (code, json.loads(out)) == (
        0,
        [
            {
                "profile": "a",
                "namesrv": "x:1",
                "timeout": None,
                "namespace": None,
                "access_key": None,
                "tls": False,
            },
            {
                "profile": "b",
                "namesrv": None,
                "timeout": 5,
                "namespace": "shop",
                "access_key": "alice",
                "tls": False,
            },
        ],
    )
    assert "profiles.toml" in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no profile 'x'"),
        ("[profile.x", "profiles.toml"),
        ("profile = 1", "[profile.NAME]"),
        ("profile.x = 1", "not a table"),
        ("[profile.x]\nname_server = ''", "unknown keys: name_server"),
        ("[profile.x]\nnamesrv = 1", "must be a string"),
        ("[profile.x]\ntimeout = 0", "number of seconds"),
    ],
)
def test_a_profile_that_says_nothing_useful_is_wrong_usage(
    run: Run, write: Any, text: str, told: str
) -> None:
    write(text)
    code, _, err = run("topic", "list", "-p", "x")
    assert code == 2
    assert told in err


def complete(*words: str) -> list[str]:
    """Completions that bash offers for the last of the words."""
    shell = BashComplete(cli.root, {}, "rmqpy", "_RMQPY_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_commands_and_names_complete(server: Standalone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic("orders", exist_ok=True)
        admin.create_group("billing")
    assert complete("me") == ["message"]
    assert complete("topic", "des") == ["describe"]
    assert complete("topic", "describe", "or") == ["orders"]
    assert complete("group", "lag", "bil") == ["billing"]
    assert complete("config", "get", "bro") == ["broker-a"]


def test_names_complete_from_the_cluster_named_before_the_command(server: Standalone) -> None:
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic("orders", exist_ok=True)
    assert complete("-n", server.namesrv, "topic", "describe", "or") == ["orders"]


def test_nothing_completes_where_no_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", NOWHERE)
    assert complete("topic", "describe", "or") == []
