"""Hints of errors on the command line: they name its options, which are accepted at any position."""

from pathlib import Path

import pytest

import rmqpy
from commandline import Run, runner
from rmqpy import cli
from rmqpy.cli.exits import OPTION_OF, error_line
from rmqpy.errors import AuthError, ConfigError
from rmqpy.server import Standalone

SOURCES = Path(__file__).parents[2]


def test_the_table_of_options_has_sentences_that_errors_have() -> None:
    python = [
        path.read_text("utf-8") for path in (SOURCES / "python").rglob("*.py") if path.name != "exits.py"
    ]
    rust = [" ".join(path.read_text("utf-8").split()) for path in (SOURCES / "rust/src").rglob("*.rs")]
    text = "\n".join([*python, *rust]).replace("\\ ", "")
    assert [each for each in OPTION_OF if each not in text] == []
    options = " ".join(name for each in cli.root.params for name in each.opts)
    for option in OPTION_OF.values():
        for word in option.replace("(", " ").replace(",", " ").replace(")", " ").split():
            assert not word.startswith("--tls") or word in options


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            AuthError("the request is not signed: give the client an access key and its secret key"),
            "--access-key",
        ),
        (ConfigError("a key goes with its certificate: give cert, too"), "--tls-cert"),
        (ConfigError("no name server given", hint="pass namesrv='host:9876' or set NAMESRV_ADDR"), "-n HOST"),
    ],
)
def test_errors_name_options_in_the_place_of_arguments(error: Exception, told: str) -> None:
    assert told in error_line(error)


def test_a_filter_that_is_sql_is_answered_with_its_option(run: Run) -> None:
    run("topic", "create", "orders")
    code, _, err = run("consume", "orders", "--filter", "colour = 'red'")
    assert code == 2
    assert "--sql" in err
    assert "rmqpy.sql" not in err


@pytest.mark.parametrize("text", ["a != 1", "a == 1", "a LIKE 'x%'", "a = 1 && b = 2"])
def test_an_operator_that_sql92_lacks_is_answered_with_those_there_are(run: Run, text: str) -> None:
    run("topic", "create", "orders")
    code, _, err = run("consume", "orders", "--sql", text)
    assert code != 0
    assert "operators are = <> < <= > >=, AND, OR, NOT, BETWEEN, IN, IS NULL" in err


@pytest.mark.parametrize(
    "words",
    [
        ["--access-key", "root", "--secret-key", "root-secret"],
        ["--tls-ca", "missing.pem"],
        ["--tls", "--tls-insecure"],
        ["--tls-server-name", "mq.example"],
        ["--no-tls"],
    ],
    ids=" ".join,
)
def test_keys_and_tls_may_stand_before_the_command_as_well(
    server: Standalone,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    after = runner(server.namesrv, monkeypatch, capfd)
    before = runner(server.namesrv, monkeypatch, capfd, *words)
    expected = after("topic", "list", "--timeout", "1", *words)
    assert before("topic", "list", "--timeout", "1") == expected
    # The nearer one wins.
    assert before("topic", "list", "--no-tls", "--timeout", "1")[0] == 0


@pytest.mark.parametrize("end", ["begin", "end", "earliest", "latest"])
def test_an_end_has_each_of_its_names_wherever_it_is_given(run: Run, server: Standalone, end: str) -> None:
    is_begin = end in ("begin", "earliest")
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        admin.create_topic("ends", read_queues=1, write_queues=1, exist_ok=True)
        admin.create_group("billing", exist_ok=True)
        if not admin.topic("ends")[0].end:
            producer.send("ends", b"first")
        with rmqpy.PullConsumer("billing", server.namesrv, start_from=end) as consumer:
            [queue] = consumer.queues("ends")
            consumer.assign([queue])
            consumer.seek(queue, end)
            assert consumer.position(queue) == (0 if is_begin else 1)
            consumer.commit({queue: 0})
        [move] = admin.reset_offsets("billing", "ends", end, dry_run=True)
        assert move.target == (0 if is_begin else 1)
        with pytest.raises(ConfigError, match="neither 'begin'"):
            admin.reset_offsets("billing", "ends", "first")
    code, out, _ = run("consume", "ends", "--from", end)
    assert (code, "first" in out) == (0, is_begin)
    code, out, _ = run("group", "reset", "billing", "ends", "--to", end, "--dry-run", "-o", "template={to}")
    assert (code, out) == (0, "0\n" if is_begin else "1\n")
