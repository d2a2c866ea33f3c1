"""Clients of Apache at a broker and a name server with a certificate.

Goal: Java 4.9.8, Java 5.5.0 and Go work encrypted in each mode, signed at the same time, and what goes wrong is in the
server's log, since their own errors do not say it. Method: one JVM a version, as Java's users set TLS up
(`signed_java.py`); Go's client as it is after its last release, which has no TLS.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import certificates
import waiting
from certificates import Files, write
from rmqpy.server import Standalone

from .clients import InteropClient, ProcessClient
from .messages import MessageSpec
from .signed_java import SignedJava
from .test_access import ON, WAIT_S

wait_until = partial(waiting.until, seconds=WAIT_S, pause=0.02)

MODES: dict[str, dict[str, str]] = {
    "permissive": {"tls.server.mode": "permissive"},
    "enforcing": {"tls.server.mode": "enforcing"},
    "mutual": {"tls.server.need.client.auth": "require"},
}
ROOT_KEYS = ("root", "root-secret")

pytestmark = pytest.mark.timeout(300, func_only=True)


@contextmanager
def serving(folder: Path, files: Files, mode: str = "enforcing") -> Iterator[Standalone]:
    """With access control: a user signs and encrypts."""
    own = {
        "tls.server.trustCertPath": files.ca,
        "tls.client.certPath": files.cert,
        "tls.client.keyPath": files.key,
    }
    given = certificates.settings(files) | own | MODES[mode]
    with Standalone(folder / "data", namesrv_port=0, broker_port=0, **given, **ON) as server:
        yield server


@pytest.mark.parametrize("mode", MODES)
def test_java_clients_and_their_tool_work_through_tls(
    signed_java: SignedJava, mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = write(tmp_path)
    with serving(tmp_path, files, mode) as server:
        namesrv = server.namesrv
        signed_java.use_tls(*files)
        assert signed_java.ask("send", "root", namesrv, "orders", 3).count("SEND_OK") == 3
        assert "consumed 3" in signed_java.ask("push", "root", namesrv, "orders", "pushed", 3)
        assert "consumed 3" in signed_java.ask("pull", "root", namesrv, "orders", "pulled", 3)
        assert "orders\n" in signed_java.ask("mqadmin", "root", "topicList", "-n", namesrv)
        # Signatures are asked for as without TLS.
        assert "CODE: 16" in signed_java.ask("send", "root wrong-secret", namesrv, "orders", 1)
        caplog.clear()
        if mode == "mutual":
            signed_java.use_tls(files.ca)
        else:
            signed_java.use_no_tls()
        sent = signed_java.ask("send", "root", namesrv, "orders", 1)
        listed = signed_java.ask("mqadmin", "root", "topicList", "-n", namesrv)
        if mode == "permissive":
            assert "SEND_OK" in sent
            assert "orders\n" in listed
        else:
            assert "SEND_OK" not in sent
            assert "SubCommandException" in listed
            told = {"enforcing": "not encrypted, and tls.server.mode is enforcing", "mutual": "certificate"}
            wait_until(lambda: told[mode] in caplog.text)


def test_java_clients_check_authority_and_date_of_a_certificate_but_no_name(
    signed_java: SignedJava, tmp_path: Path
) -> None:
    files, stranger = write(tmp_path / "a"), write(tmp_path / "b")
    with serving(tmp_path, files) as server:
        signed_java.use_tls(*stranger)
        assert "SEND_OK" not in signed_java.ask("send", "root", server.namesrv, "orders", 1)
        signed_java.use_tls(*files)
        signed_java.ask("open", "root", server.namesrv)
        assert "SEND_OK" in signed_java.ask("again", "root", "orders")
        for names, days, is_taken in ((["mq.example"], 2, True), (certificates.LOCAL, 0, False)):
            certificates.replace(files, write(tmp_path / names[0], names, days=days))
            certificates.wait_until_shown(files.cert, server.namesrv, server.broker)
            signed_java.use_tls(files.ca)
            new = signed_java.ask("send", "root", server.namesrv, "orders", 1)
            assert ("SEND_OK" in new) == is_taken, new
            # The existing connection continues.
            assert "SEND_OK" in signed_java.ask("again", "root", "orders")
        signed_java.ask("leave", "")


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_the_next_go_client_works_through_tls_and_checks_no_certificate(
    client_of: Callable[[str], InteropClient], mode: str, tmp_path: Path
) -> None:
    client = client_of("go-next")
    assert isinstance(client, ProcessClient)
    messages = [MessageSpec(str(number).encode()) for number in range(3)]
    files = write(tmp_path)
    with serving(tmp_path, files, mode) as server:
        namesrv = server.namesrv
        if mode == "permissive":
            released = client_of("go")
            assert isinstance(released, ProcessClient)
            released.send(namesrv, "orders", messages[:1], credentials=ROOT_KEYS)
            with pytest.raises(RuntimeError, match="this release of the client has no TLS"):
                released.send(namesrv, "orders", messages, credentials=ROOT_KEYS, tls=True)
        client.send(namesrv, "orders", messages, credentials=ROOT_KEYS, tls=True)
        listener = client.listen(namesrv, "orders", "pushed", credentials=ROOT_KEYS, tls=True)
        assert len(listener.wait_for(3, WAIT_S)) >= 3
        listener.stop()
        pulled = client.pull(
            namesrv, "orders", "pulled", api="poll", count=3, credentials=ROOT_KEYS, tls=True
        )
        assert len(pulled) == 3
        certificates.replace(files, write(tmp_path / "expired", ["mq.example"], days=0))
        certificates.wait_until_shown(files.cert, namesrv, server.broker)
        # A separate producer.
        client.send(namesrv, "orders", messages[:1], mode="keyed", credentials=ROOT_KEYS, tls=True)
