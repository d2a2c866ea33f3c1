"""Signed clients: the messages that users of a broker with access control can send and read."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqpy
from rmqpy import cli, testing
from rmqpy.config import profiles
from rmqpy.errors import AuthError, ConfigError, RequestTimeout, SendError

ROOT = rmqpy.Credentials("root", "root-secret")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inner-secret"}),
}


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """The address of a cluster with access control."""
    with testing.broker(**SETTINGS) as cluster:
        yield cluster.namesrv


def config(namesrv: str, credentials: rmqpy.Credentials | None, **options: object) -> rmqpy.ClientConfig:
    return rmqpy.ClientConfig(namesrv=namesrv, credentials=credentials, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("header", ["json", "binary"])
def test_a_client_with_credentials_sends_and_consumes(namesrv: str, header: str) -> None:
    signed = config(namesrv, ROOT, header=header)
    topic = f"orders-{header}"
    with rmqpy.Admin(signed) as admin:
        admin.create_topic(topic)
    with rmqpy.Producer(signed) as producer:
        producer.send(topic, "paid")
        producer.send_batch([rmqpy.Message(topic, "one"), rmqpy.Message(topic, "two")])
    with rmqpy.PullConsumer(f"billing-{header}", signed, start_from="earliest") as consumer:
        consumer.subscribe(topic)
        found: list[bytes] = []
        while len(found) < 3:
            found += [message.body for message in consumer.poll(timeout=10)]
        consumer.commit()
    assert sorted(found) == [b"one", b"paid", b"two"]


@pytest.mark.parametrize(
    "credentials", [None, rmqpy.Credentials("root", "wrong"), rmqpy.Credentials("no", "no")]
)
def test_wrong_credentials_are_refused_without_details(
    namesrv: str, credentials: rmqpy.Credentials | None
) -> None:
    with rmqpy.Admin(config(namesrv, ROOT)) as admin:
        admin.create_topic("guarded", exist_ok=True)
    with (
        rmqpy.Producer(config(namesrv, credentials)) as producer,
        pytest.raises(SendError, match=r"not signed|is unknown, or the signature") as caught,
    ):
        producer.send("guarded", "paid")
    # Another broker might accept it, so the error has each broker's reply. Retries with guesses are delayed, and may
    # time out.
    assert isinstance(caught.value.__cause__, AuthError | RequestTimeout)
    with rmqpy.Admin(config(namesrv, credentials)) as admin, pytest.raises(AuthError):
        admin.create_topic("another")


def test_secret_is_hidden_in_repr_but_pickled_with_the_configuration() -> None:
    given = rmqpy.ClientConfig(credentials=ROOT)
    assert "root-secret" not in repr(given)
    assert pickle.loads(pickle.dumps(given)) == given  # noqa: S301
    with pytest.raises(ConfigError, match="access key and a secret key"):
        rmqpy.Credentials("alice", "")


def test_variables_and_profiles_have_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQPY_ACCESS_KEY", "alice")
    monkeypatch.setenv("RMQPY_SECRET_KEY", "alice-secret")
    assert rmqpy.ClientConfig.from_env().credentials == rmqpy.Credentials("alice", "alice-secret")
    monkeypatch.delenv("RMQPY_ACCESS_KEY")
    with pytest.raises(ConfigError):
        rmqpy.ClientConfig.from_env()
    monkeypatch.delenv("RMQPY_SECRET_KEY")
    file = tmp_path / "profiles.toml"
    monkeypatch.setenv("RMQPY_PROFILES", str(file))
    file.write_text('[profile.a]\naccess_key = "bob"\nsecret_key = "bobs"\n')
    assert rmqpy.ClientConfig.from_profile("a").credentials == rmqpy.Credentials("bob", "bobs")
    file.write_text('[profile.a]\naccess_key = "bob"\n')
    with pytest.raises(ConfigError, match="both access_key and secret_key"):
        profiles.get("a")


def test_commands_sign_their_requests(
    namesrv: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ["topic", "create", "from-a-shell", "-n", namesrv]
    assert cli.run(ask) != 0
    monkeypatch.setenv("RMQPY_SECRET_KEY", "root-secret")
    assert cli.run([*ask, "--access-key", "root"]) == 0
    assert "root-secret" not in capsys.readouterr().out
