"""Access control of a name server: who administers it, who registers, and what stays open."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from broker.every_request import NO_PERMISSION, request_of, wrong_answers
from broker.signing import signed
from rmqpy import testing
from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.config import namesrv as namesrv_config
from rmqpy.errors import ConfigError
from rmqpy.namesrv import NameServer
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.unserved import UNSERVED_BY_NAME_SERVER
from rmqpy.server import Standalone
from wire import Peer

ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inner-secret"}),
}
#: Served by a name server.
SERVED = [code for code in RequestCode if code not in UNSERVED_BY_NAME_SERVER]

StartNameServer = Callable[..., Coroutine[Any, Any, NameServer]]


@pytest.fixture
async def start_name_server(tmp_path: Path) -> AsyncIterator[StartNameServer]:
    started = []

    async def start(**settings: str) -> NameServer:
        given = {
            "listenPort": "0",
            "kvConfigPath": "",
            "configStorePath": "",
            "authConfigPath": str(tmp_path / "auth"),
        }
        server = NameServer(namesrv_config.read(given | settings).config)
        await server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        await server.stop()


def served(server: NameServer) -> list[RequestCode]:
    return [code for code, by in server.table().items() if by != "not served"]


async def test_every_code_is_refused_to_who_may_not_and_to_nobody_else(
    start_name_server: StartNameServer,
) -> None:
    server = await start_name_server(
        **ON, registrationAuthenticationEnabled="true", routeAuthenticationEnabled="true"
    )
    assert len(served(server)) >= 30
    wrong = await wrong_answers(server.address, served(server))
    assert not wrong, "\n".join(wrong)


async def test_routes_and_registration_stay_open_and_administration_does_not(
    start_name_server: StartNameServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start_name_server(**ON)
    opened = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.BROKER_HEARTBEAT,
    }
    async with await signed(server.address) as nobody:
        for code in served(server):
            ext, body = request_of(code)
            answer = await nobody.call(code, ext, body)
            assert (answer.code != NO_PERMISSION) == (code in opened), code.name
    async with await signed(server.address, "root") as root:
        assert (await root.call(RequestCode.GET_NAMESRV_CONFIG)).code == 0
        config = await root.call(RequestCode.GET_NAMESRV_CONFIG)
        assert b"initAuthenticationUser=******" in config.body
    assert "secret" not in caplog.text
    assert b"root-secret" not in config.body


async def test_only_brokers_with_inner_credentials_register_where_that_is_asked(
    start_name_server: StartNameServer, tmp_path: Path
) -> None:
    server = await start_name_server(**ON, registrationAuthenticationEnabled="true")

    def broker(name: str, **settings: str) -> Broker:
        given = {
            "brokerName": name,
            "namesrvAddr": server.address,
            "listenPort": "0",
            "storePathRootDir": str(tmp_path / name),
            "mappedFileSizeCommitLog": str(1 << 20),
        }
        return Broker(broker_config.read(given | settings).config)

    inner = "innerClientAuthenticationCredentials"
    forged = json.dumps({"accessKey": "inner", "secretKey": "another"})
    async with (
        broker("known", **{inner: ON[inner]}),
        broker("unknown"),
        broker("forged", **{inner: forged}),
        await Peer.connect(server.address) as peer,
    ):
        info = await peer.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert [name.encode() in info.body for name in ("known", "unknown", "forged")] == [True, False, False]


def test_users_are_administered_at_both_servers_of_one_process(tmp_path: Path) -> None:
    root = rmqpy.Credentials("root", "root-secret")
    with Standalone(tmp_path, namesrv_port=0, broker_port=0, **ON) as server:
        config = rmqpy.ClientConfig(namesrv=server.namesrv, credentials=root)
        with rmqpy.Admin(config) as admin:
            admin.create_user("alice", "alice-secret")
            admin.set_rule("alice", "Topic:orders", ["Pub"])
            assert {user.broker for user in admin.users() if user.name == "alice"} == {
                "broker-a",
                f"namesrv {server.namesrv}",
            }
            assert all(
                answer.is_allowed for answer in admin.check_access("alice", "Pub", "Topic:orders", "::1")
            )
            admin.create_topic("orders")
        alice = rmqpy.ClientConfig(
            namesrv=server.namesrv, credentials=rmqpy.Credentials("alice", "alice-secret")
        )
        with rmqpy.Producer(alice) as producer:
            producer.send("orders", "paid")
        with rmqpy.Admin(alice) as admin, pytest.raises(rmqpy.errors.AuthError):
            admin.namesrv_config()


async def test_accounts_of_the_first_kind_administer_a_name_server(
    start_name_server: StartNameServer, tmp_path: Path
) -> None:
    (tmp_path / "conf").mkdir()
    accounts = "accounts: [{accessKey: operator, secretKey: operator-secret, admin: true}]"
    (tmp_path / "conf" / "plain_acl.yml").write_text(accounts)
    server = await start_name_server(aclEnable="true", rocketmqHome=str(tmp_path))
    async with await signed(server.address) as nobody, await signed(server.address, "operator") as operator:
        kv = {"namespace": "a", "key": "b", "value": "c"}
        assert (await nobody.call(RequestCode.PUT_KV_CONFIG, kv)).code == NO_PERMISSION
        assert (await operator.call(RequestCode.PUT_KV_CONFIG, kv)).code == 0


def test_without_the_switch_a_name_server_has_no_users(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with testing.broker() as cluster, rmqpy.Admin(cluster.namesrv) as admin:
        assert admin.users() == []
    with pytest.raises(ConfigError, match="at the next start"):
        namesrv_config.read({}).config.change({"authenticationEnabled": "true"})
