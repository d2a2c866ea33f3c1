"""TLS as a user sets it up: one port for both, certificates replaced online, and errors with advice."""

import http.client
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

import certificates
import rmqpy
from certificates import Files, write
from rmqpy.config import broker, namesrv
from rmqpy.errors import ConfigError, RocketMQError, TopicNotFound
from rmqpy.server import Standalone
from rmqpy.testing import SMALL
from waiting import anything, until


@contextmanager
def serving(folder: Path, files: Files, **settings: str) -> Iterator[Standalone]:
    given = certificates.settings(files, **settings)
    with Standalone(folder / "data", namesrv_port=0, broker_port=0, http_port=0, **SMALL, **given) as server:
        yield server


def config(server: Standalone, tls: rmqpy.TLS | None) -> rmqpy.ClientConfig:
    return rmqpy.ClientConfig(namesrv=server.namesrv, tls=tls)


def exchange(config: rmqpy.ClientConfig, text: str) -> None:
    """Send a message and read it."""
    with rmqpy.Producer(config) as producer:
        sent = producer.send("orders", text.encode())
    with rmqpy.PullConsumer("readers", config, auto_commit=False) as consumer:
        # The broker reports a new topic to the name server after the reply.
        until(lambda: consumer.assign([sent.queue]), wanted=lambda _: True, failing=(TopicNotFound,))
        consumer.seek(sent.queue, sent.queue_offset)
        assert [message.text() for message in consumer.poll(timeout=10)][:1] == [text]


@pytest.mark.parametrize("mode", ["enforcing", "permissive"])
def test_tls_works_and_plain_connections_only_if_permitted(tmp_path: Path, mode: str) -> None:
    files = write(tmp_path)
    with serving(tmp_path, files, tls_server_mode=mode) as server:
        exchange(config(server, rmqpy.TLS(ca=files.ca)), "encrypted")
        with rmqpy.Admin(config(server, rmqpy.TLS(ca=files.ca))) as admin:
            assert admin.topics()
        if mode == "permissive":
            exchange(config(server, None), "plain")
        else:
            with (
                pytest.raises(RocketMQError, match="the port may require TLS"),
                rmqpy.Admin(config(server, None)) as admin,
            ):
                admin.topics()


def test_untrusted_server_is_refused_with_advice(tmp_path: Path) -> None:
    files, other = write(tmp_path / "a"), write(tmp_path / "b")
    with serving(tmp_path, files) as server:
        for tls, told in (
            (rmqpy.TLS(ca=other.ca), "no trusted authority has signed"),
            (rmqpy.TLS(ca=files.ca, server_name="mq.example"), "is not for mq.example, but for"),
        ):
            with pytest.raises(RocketMQError, match=told), rmqpy.Admin(config(server, tls)) as admin:
                admin.topics()
        exchange(config(server, rmqpy.TLS(verify=False)), "careless")


def test_clients_send_a_required_certificate(tmp_path: Path) -> None:
    files = write(tmp_path)
    required = {"tls_server_need_client_auth": "require", "tls_server_trustCertPath": files.ca}
    own = {"tls_client_certPath": files.cert, "tls_client_keyPath": files.key}
    with serving(tmp_path, files, **required, **own) as server:
        exchange(config(server, rmqpy.TLS(ca=files.ca, cert=files.cert, key=files.key)), "known")
        with (
            pytest.raises(RocketMQError, match="certificate of this client is required"),
            rmqpy.Admin(config(server, rmqpy.TLS(ca=files.ca))) as admin,
        ):
            admin.topics()


def test_certificates_replaced_under_load_fail_no_send(tmp_path: Path) -> None:
    files = write(tmp_path)
    with serving(tmp_path, files) as server:
        done, counts, failures = threading.Event(), [0], []

        def load() -> None:
            # Each with connections of its own.
            number = 0
            while not done.is_set():
                number += 1
                fresh = rmqpy.ClientConfig(
                    namesrv=server.namesrv, tls=rmqpy.TLS(verify=False), request_timeout=10 + number / 1000
                )
                try:
                    with rmqpy.Producer(fresh, retries=0) as producer:
                        for _ in range(20):
                            producer.send("orders", b"x")
                            counts[0] += 1
                except RocketMQError as error:
                    failures.append(error)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            for number in range(3):
                certificates.replace(files, write(tmp_path / f"next-{number}"))
                trusting = rmqpy.TLS(ca=files.ca)
                # A separate configuration has separate connections.
                new = rmqpy.ClientConfig(
                    namesrv=server.namesrv, tls=trusting, request_timeout=5 + number / 10
                )
                until(partial(exchange, new, "new"), wanted=anything, failing=RocketMQError)
        finally:
            done.set()
            thread.join()
        assert not failures
        assert counts[0] > 20


def test_pages_use_https_and_http_only_if_permitted(tmp_path: Path) -> None:
    files = write(tmp_path)
    context = ssl.create_default_context(cafile=files.ca)
    for mode in ("permissive", "enforcing"):
        with serving(tmp_path / mode, files, tls_server_mode=mode) as server:
            assert server.http is not None
            host, _, port = server.http.rpartition(":")
            for _ in range(2):
                page = http.client.HTTPSConnection(host, int(port), context=context, timeout=10)
                page.request("GET", "/livez")
                assert page.getresponse().status == 200
            plain = http.client.HTTPConnection(host, int(port), timeout=10)
            if mode == "permissive":
                plain.request("GET", "/livez")
                assert plain.getresponse().status == 200
            else:
                plain.request("GET", "/livez")
                with pytest.raises((http.client.HTTPException, OSError)):
                    plain.getresponse()


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00"], ids=["silent", "handshake"])
def test_unfinished_handshakes_block_no_others(tmp_path: Path, said: bytes) -> None:
    files = write(tmp_path)
    context = ssl.create_default_context(cafile=files.ca)
    with serving(tmp_path, files) as server, ExitStack() as stack:
        assert server.http is not None
        host, _, port = server.http.rpartition(":")
        for _ in range(3 * 64):
            peer = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            # Some were hung up on by then.
            with suppress(ConnectionError):
                peer.sendall(said)
        page = http.client.HTTPSConnection(host, int(port), context=context, timeout=10)
        stack.callback(page.close)
        page.request("GET", "/readyz")
        assert page.getresponse().status == 200


def test_test_certificate_is_created_at_the_start(tmp_path: Path) -> None:
    settings = {"tls.test.mode.enable": "true"}
    with Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL, **settings) as server:
        exchange(config(server, rmqpy.TLS(verify=False)), "tried")


def test_tls_keys_can_be_in_a_separate_file_with_lower_precedence(tmp_path: Path) -> None:
    files = write(tmp_path)
    own = tmp_path / "tls.properties"
    own.write_text(
        f"tls.server.certPath={files.cert}\ntls.server.keyPath={files.key}\ntls.server.mode=permissive\n"
    )
    near = tmp_path / "broker.conf"
    near.write_text(f"tls.config.file={own}\n")
    assert broker.load(near).config.tls.mode == "permissive"
    assert not broker.load(near).config.tls.is_enforced
    assert broker.load(near, {"tls.server.mode": "enforcing"}).config.tls.is_enforced
    assert namesrv.load(near, {"tls.server.mode": ""}).config.tls.is_enforced, "a certificate enforces"
    assert not broker.load(None).config.tls.is_served


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tls.server.mode": "enforcing"}, "needs a certificate"),
        ({"tls.server.certPath": "a"}, "must both be set"),
        ({"tls.server.need.client.auth": "require", "tls.test.mode.enable": "true"}, "trustCertPath"),
        ({"tls.server.mode": "on"}, "must be one of"),
        ({"tls.config.file": "/nowhere/tls.properties"}, "nowhere"),
        ({"tls.protocols": "TLSv1.1,TLSv1.2"}, '"TLSv1.1" is not supported, only TLSv1.2 and TLSv1.3'),
        ({"tls.ciphers": "HIGH:!aNULL"}, '"HIGH" is not supported, only TLS_AES_256_GCM_SHA384'),
        ({"tls.ciphers": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "TLS_RSA_WITH_AES_128_CBC_SHA"),
        ({"tls.protocols": "TLSv1.3", "tls.ciphers": "ECDHE-RSA-AES128-GCM-SHA256"}, "none of its ciphers"),
        (
            {"tls.test.mode.enable": "true", "tls.ciphers": "TLS_AES_128_GCM_SHA256", "httpPort": "8082"},
            "cannot be chosen for HTTP",
        ),
        ({"certificateAuthenticationEnabled": "true"}, "authentication is off"),
        (
            {
                "certificateAuthenticationEnabled": "true",
                "authenticationEnabled": "true",
                "tls.server.need.client.auth": "require",
            },
            "this server has no certificate",
        ),
        (
            {
                "certificateAuthenticationEnabled": "true",
                "authenticationEnabled": "true",
                "tls.test.mode.enable": "true",
            },
            "clients are not asked for a certificate",
        ),
    ],
)
def test_unusable_tls_settings_prevent_the_start_with_a_reason(settings: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        broker.load(None, settings)


def test_environment_and_profile_can_enable_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(tmp_path)
    assert rmqpy.ClientConfig.from_env().tls is None
    monkeypatch.setenv("RMQPY_TLS_CA", files.ca)
    assert rmqpy.ClientConfig.from_env().tls == rmqpy.TLS(ca=files.ca)
    monkeypatch.setenv("RMQPY_TLS", "false")
    assert rmqpy.ClientConfig.from_env().tls is None
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(f'[profile.safe]\nnamesrv = "a:1"\ntls = {{ ca = "{files.ca}" }}\n')
    monkeypatch.setenv("RMQPY_PROFILES", str(profiles))
    assert rmqpy.ClientConfig.from_profile("safe").tls == rmqpy.TLS(ca=files.ca)


def spoken(address: str, context: ssl.SSLContext) -> tuple[str | None, str]:
    """Protocol and cipher of a connection."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname=host) as encrypted,
    ):
        cipher = encrypted.cipher()
        assert cipher is not None
        return encrypted.version(), cipher[0]


@pytest.mark.parametrize(
    ("protocols", "ciphers"),
    [
        ("TLSv1.2", ""),
        ("", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ],
)
def test_unlisted_protocols_and_ciphers_are_refused_on_every_port(
    tmp_path: Path, protocols: str, ciphers: str
) -> None:
    files = write(tmp_path)
    with serving(tmp_path, files, tls_protocols=protocols, tls_ciphers=ciphers) as server:
        exchange(config(server, rmqpy.TLS(ca=files.ca)), "spoken")
        assert server.http is not None
        for address in (server.namesrv, server.broker, server.http):
            usual = ssl.create_default_context(cafile=files.ca)
            version, cipher = spoken(address, usual)
            assert version == "TLSv1.2"
            assert not ciphers or cipher == "ECDHE-ECDSA-AES128-GCM-SHA256"
            newest = ssl.create_default_context(cafile=files.ca)
            newest.minimum_version = ssl.TLSVersion.TLSv1_3
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                spoken(address, newest)


def test_expired_certificate_is_reported_at_both_ends_with_advice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, old = write(tmp_path / "a"), write(tmp_path / "b", days=0)
    told = "has expired.*replace"
    with serving(tmp_path / "old", old, tls_client_authServer="false") as server:
        assert re.search(told, caplog.text), "at the start"
        with (
            pytest.raises(RocketMQError, match=f"(?s){told}"),
            rmqpy.Admin(config(server, rmqpy.TLS(ca=old.ca))) as admin,
        ):
            admin.topics()
    caplog.clear()
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(Path(files.ca).read_text() + Path(old.ca).read_text())
    required = {"tls_server_need_client_auth": "optional", "tls_server_trustCertPath": str(trusted)}
    with serving(tmp_path / "new", files, **required) as server:
        with (
            pytest.raises(
                RocketMQError,
                match=r"the peer refused this side's certificate \(CertificateExpired\): replace it",
            ),
            rmqpy.Admin(config(server, rmqpy.TLS(ca=files.ca, cert=old.cert, key=old.key))) as admin,
        ):
            admin.topics()
        until(lambda: re.search(f"could not connect: .*{told}", caplog.text))
