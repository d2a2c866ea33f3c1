"""The same attacks on servers with access control, by nobody and by a user without rights: none has an effect.

Method: what the servers keep is compared before and after; what is answered with 0 must be open to everybody who is
known, and at the name server to everybody.
"""

import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

import rmqpy
from broker.signing import signature
from hostile.cases import BYTES, REQUESTS
from hostile.cases.case import GROUP, HONEST_TOPIC, QUIET_TOPIC, RESET_GROUP, TOPIC, Case
from rmqpy.config.namesrv import REGISTRATION_CODES, ROUTE_CODES
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request
from rmqpy.server import Standalone
from wire import Frame

ON = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
}
TIMEOUT_S = 20.0
NO_PERMISSION = 16
#: What everybody may who is known: nothing is done by it unless the request names more.
FREE = {
    kind.code
    for kind in Request.__subclasses__()
    if "code" in vars(kind) and all(need.is_optional for need in kind.needs)
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp("guarded")
    with Standalone(folder, namesrv_port=0, broker_port=0, mappedFileSizeCommitLog=16 << 20, **ON) as server:
        with rmqpy.Admin(root(server)) as admin:
            for topic in (TOPIC, QUIET_TOPIC, HONEST_TOPIC):
                admin.create_topic(topic)
            for group in (GROUP, RESET_GROUP):
                admin.create_group(group)
            admin.create_user("alice", "alice-secret")
        with rmqpy.Producer(root(server)) as producer:
            producer.send(TOPIC, b"first")
        yield server


def root(server: Standalone) -> rmqpy.ClientConfig:
    return rmqpy.ClientConfig(namesrv=server.namesrv, credentials=rmqpy.Credentials("root", "root-secret"))


def kept(server: Standalone) -> dict[str, object]:
    """What the servers would have to change for an attack to have had an effect."""
    with rmqpy.Admin(root(server)) as admin:
        found: dict[str, object] = {
            "topics": sorted(admin.topics()),
            "groups": sorted(admin.groups()),
            "users": admin.users(),
            "rules": admin.rules(),
            "broker": admin.broker_config("broker-a"),
            "name server": admin.namesrv_config(),
            "queues": [(queue.begin, queue.end) for queue in admin.topic(TOPIC)],
            "quiet queues": [(queue.begin, queue.end) for queue in admin.topic(QUIET_TOPIC)],
        }
    for name in ("topics.json", "subscriptionGroup.json", "users.json"):
        found[name] = (server.data_dir / "store" / "config" / name).read_bytes()
    kv = server.data_dir / "namesrv" / "kvConfig.json"
    found["kv"] = kv.read_bytes() if kv.exists() else b""
    return found


def answers(address: str, content: bytes) -> list[Frame]:
    """Send it all, and what came back."""
    host, _, port = address.rpartition(":")
    received = b""
    with socket.create_connection((host, int(port)), TIMEOUT_S) as peer, suppress(OSError):
        # A server hangs up in the middle of what it does not want.
        with suppress(OSError):
            peer.sendall(content)
            peer.shutdown(socket.SHUT_WR)
        while part := peer.recv(1 << 16):
            received += part
    found = []
    while len(received) >= 4 and len(received) >= (size := 4 + int.from_bytes(received[:4], "big")):
        found.append(Frame.unpack(received[4:size]))
        received = received[size:]
    return found


def code_of(case: Case) -> int | None:
    """The code of a request that can be read."""
    with suppress(Exception):
        return Frame.unpack(case.content[4:]).code
    return None


def by_alice(case: Case) -> bytes | None:
    """The same, signed; None where that cannot be done."""
    with suppress(Exception):
        frame = Frame.unpack(case.content[4:])
        ext = {**(frame.ext or {}), "AccessKey": "alice"}
        ext["Signature"] = signature("alice-secret", ext, frame.body)
        return replace(frame, ext=ext).pack()
    return None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("user", ["nobody", "alice"])
def test_no_attack_has_an_effect(server: Standalone, user: str) -> None:
    before, counts, served = kept(server), Counter[str](), []
    for case in (*BYTES, *REQUESTS):
        content = case.content if user == "nobody" else by_alice(case)
        if content is None:
            continue
        code = code_of(case)
        at_name_server = case.target == "namesrv"
        for answer in answers(server.namesrv if at_name_server else server.broker, content):
            counts[f"answered {answer.code}"] += 1
            is_open = at_name_server and code in (*ROUTE_CODES, *REGISTRATION_CODES)
            if answer.code == 0 and not is_open and not (user == "alice" and code in FREE):
                served.append((case.name, code and RequestCode(code).name))
    print(f"\n{user}: {dict(sorted(counts.items()))}")
    assert not served
    assert counts[f"answered {NO_PERMISSION}"] > 500
    after = kept(server)
    assert {name: after[name] for name in before if after[name] != before[name]} == {}


def test_no_secret_is_in_a_log(server: Standalone, caplog: pytest.LogCaptureFixture) -> None:
    for case in REQUESTS[:50]:
        answers(server.broker, by_alice(case) or b"")
    assert "alice-secret" not in caplog.text
    assert "root-secret" not in caplog.text
    for path in server.data_dir.rglob("*"):
        if path.is_file() and path.stat().st_size < 1 << 20 and not path.name.startswith("users.json"):
            assert b"alice-secret" not in path.read_bytes(), path
