"""TLS of commands: options, environment and profiles, and their precedence."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from certificates import Authority, Files, mutual
from commandline import Run, runner
from rmqpy.server import Standalone
from rmqpy.testing import SMALL


class Encrypted(NamedTuple):
    """Servers that everybody shows a certificate, and the files of a client."""

    namesrv: str
    files: Files


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    folder = tmp_path_factory.mktemp("encrypted")
    files = Authority(folder).issue("own")
    with Standalone(folder / "data", namesrv_port=0, broker_port=0, **SMALL, **mutual(files)) as server:
        yield Encrypted(server.namesrv, files)


@pytest.fixture
def run(encrypted: Encrypted, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(encrypted.namesrv, monkeypatch, capfd)


def options(files: Files, **others: str) -> list[str]:
    given = {"ca": files.ca, "cert": files.cert, "key": files.key} | others
    return [
        word for name, text in given.items() if text for word in (f"--tls-{name.replace('_', '-')}", text)
    ]


def test_options_of_tls_encrypt(run: Run, encrypted: Encrypted) -> None:
    ours = options(encrypted.files)
    assert run("topic", "create", "orders", *ours)[0] == 0
    assert run("produce", "orders", "paid", *ours)[0] == 0
    assert "paid" in run("consume", "orders", "--from", "begin", "--count", "1", *ours)[1]
    assert run("topic", "list", "--tls", *ours)[0] == 0
    assert run("topic", "list", "-n", f"rmq://{encrypted.namesrv}", *ours)[0] == 0
    assert run("topic", "list", *options(encrypted.files, server_name="localhost"))[0] == 0
    assert run("topic", "list", "--tls-insecure", *options(encrypted.files, ca=""))[0] == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"cert": "", "key": ""}, "certificate of this client is required"),
        ({"ca": ""}, "no trusted authority has signed"),
        ({"server_name": "mq.example"}, "is not for mq.example, but for"),
        ({"ca": "/nowhere.pem"}, "cannot read the ca of TLS"),
        ({"cert": ""}, "a key goes with its certificate"),
    ],
)
def test_invalid_tls_option_is_explained(
    run: Run, encrypted: Encrypted, given: dict[str, str], told: str
) -> None:
    code, _, err = run("topic", "list", "--tls", *options(encrypted.files, **given))
    assert code != 0
    assert told in err


def test_without_tls_the_error_says_that_it_may_be_wanted(run: Run) -> None:
    code, _, err = run("topic", "list")
    assert code == 3
    assert "require TLS" in err


def test_the_environment_encrypts_and_options_win(
    run: Run, encrypted: Encrypted, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ca", "cert", "key"):
        monkeypatch.setenv(f"RMQPY_TLS_{name.upper()}", getattr(encrypted.files, name))
    assert run("topic", "list")[0] == 0
    assert "is not for mq.example" in run("topic", "list", "--tls-server-name", "mq.example")[2]
    assert run("topic", "list", "--no-tls")[0] == 3
    monkeypatch.setenv("RMQPY_TLS_SERVER_NAME", "mq.example")
    assert "is not for mq.example" in run("topic", "list")[2]
    assert run("topic", "list", "--tls-server-name", "localhost")[0] == 0
    monkeypatch.delenv("RMQPY_TLS_SERVER_NAME")
    monkeypatch.setenv("RMQPY_TLS", "false")
    assert run("topic", "list")[0] == 3
    assert run("topic", "list", "--tls")[0] == 0


def test_a_profile_encrypts_and_options_win(
    run: Run, encrypted: Encrypted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ca, cert, key = encrypted.files
    profiles = tmp_path / "profiles.toml"
    table = f'ca = "{ca}", cert = "{cert}", key = "{key}"'
    profiles.write_text(
        f'[profile.safe]\nnamesrv = "{encrypted.namesrv}"\ntls = {{ {table} }}\n'
        f'[profile.careless]\ntls = {{ {table}, verify = false, server_name = "mq.example" }}\n'
    )
    monkeypatch.setenv("RMQPY_PROFILES", str(profiles))
    monkeypatch.delenv("NAMESRV_ADDR")
    assert run("-p", "safe", "topic", "list")[0] == 0
    assert run("topic", "list", "-p", "careless", "-n", encrypted.namesrv)[0] == 0
    assert run("-p", "safe", "topic", "list", "--no-tls")[0] == 3
    profiles.write_text('[profile.wrong]\ntls = { authority = "a" }\n')
    code, _, err = run("-p", "wrong", "topic", "list", "-n", encrypted.namesrv)
    assert code == 2
    assert "tls of profile.wrong must be true, or a table with some of" in err
