"""Access control of a name server: administration, registration, and open requests."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.every_request import NO_PERMISSION, request_of, wrong_answers
from broker.signing import add_user, entry, signed
from rmqpy import testing
from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.config import namesrv as namesrv_config
from rmqpy.config.namesrv import REGISTRATION_CODES, ROUTE_CODES
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


async def test_every_code_is_refused_only_to_users_without_permission(
    start_name_server: StartNameServer,
) -> None:
    server = await start_name_server(**ON, routeAuthenticationEnabled="true")
    assert len(served(server)) >= 30
    wrong = await wrong_answers(server.address, served(server))
    assert not wrong, "\n".join(wrong)


#: Unsigned requests whose reply is not "no permission", by setting.
OPEN = {
    "": ROUTE_CODES,
    "registrationAuthenticationEnabled=true": ROUTE_CODES,
    "registrationAuthenticationEnabled=false": (*ROUTE_CODES, *REGISTRATION_CODES),
    "routeAuthenticationEnabled=true": (),
    "authorizationEnabled=false": ROUTE_CODES,
}


@pytest.mark.parametrize("setting", OPEN)
async def test_each_request_needs_a_user_unless_settings_open_it(
    start_name_server: StartNameServer, caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    name, _, value = setting.partition("=")
    server = await start_name_server(**ON | ({name: value} if name else {}))
    is_authorized = name != "authorizationEnabled"
    async with (
        await signed(server.address, "root") as root,
        await signed(server.address, "alice") as alice,
        await signed(server.address) as nobody,
    ):
        await add_user(root, "alice", entry("Topic:another", "All"), entry("Group:another", "All"))
        wrong = []
        # The requests of brokers and of route queries are last: a user's own is deleted by one of the others.
        for code in served(server):
            ext, body = request_of(code)
            is_open = code in OPEN[setting]
            for who, peer, is_allowed in (
                ("nobody", nobody, is_open),
                ("a user", alice, is_open or not is_authorized),
            ):
                answer = await peer.call(code, ext, body)
                if (answer.code != NO_PERMISSION) != is_allowed and "by super user" not in (
                    answer.remark or ""
                ):
                    wrong.append(f"{code.name} of {who}: {answer.code} {answer.remark}")
        for code in served(server):
            ext, body = request_of(code)
            answer = await root.call(code, ext, body)
            if answer.code == NO_PERMISSION and "no permission to" in (answer.remark or ""):
                wrong.append(f"{code.name} of a super user: {answer.remark}")
        assert not wrong, "\n".join(wrong)
    assert "root-secret" not in caplog.text


async def test_unauthenticated_client_cannot_replace_or_remove_a_broker(
    start_name_server: StartNameServer, tmp_path: Path
) -> None:
    server = await start_name_server(**ON)
    settings = {"brokerName": "broker-a", "namesrvAddr": server.address}
    async with (
        made_broker(tmp_path, server.address, settings | ON) as broker,
        await signed(server.address) as rogue,
    ):
        names = {"brokerName": "broker-a", "clusterName": "c1", "brokerId": "0"}
        registered = await rogue.call(
            RequestCode.REGISTER_BROKER,
            names | {"brokerAddr": "127.0.0.1:1", "haServerAddr": "127.0.0.1:2", "bodyCrc32": "0"},
        )
        left = await rogue.call(RequestCode.UNREGISTER_BROKER, names | {"brokerAddr": broker.address})
        assert (registered.code, left.code) == (NO_PERMISSION, NO_PERMISSION)
        info = await rogue.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert broker.address.encode() in info.body
        assert b'127.0.0.1:1"' not in info.body


async def test_registration_needs_inner_credentials_if_configured(
    start_name_server: StartNameServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start_name_server(**ON)

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
        assert "set innerClientAuthenticationCredentials" in caplog.text
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


def test_servers_of_one_process_share_settings(tmp_path: Path) -> None:
    own = {
        name: ON[name] for name in ("authenticationEnabled", "authorizationEnabled", "initAuthenticationUser")
    }
    root = rmqpy.Credentials("root", "root-secret")
    with Standalone(
        tmp_path, namesrv_port=0, broker_port=0, routeAuthenticationEnabled=True, maxConnections=77, **own
    ) as server:
        assert not [remark for remark in server.warnings if "routeAuthentication" in remark]
        with rmqpy.Producer(rmqpy.ClientConfig(namesrv=server.namesrv, credentials=root)) as producer:
            producer.send("orders", "paid")
        with rmqpy.Admin(rmqpy.ClientConfig(namesrv=server.namesrv, credentials=root)) as admin:
            kept = admin.namesrv_config()[server.namesrv]
            assert (kept["maxConnections"], kept["routeAuthenticationEnabled"]) == ("77", "true")
            assert [user.name for user in admin.users() if user.broker == "broker-a"] == ["root"]
        with rmqpy.Admin(server.namesrv) as admin, pytest.raises(rmqpy.errors.AuthError):
            admin.route("orders")


@pytest.mark.parametrize("kind", ["aclEnable", "authenticationEnabled"])
def test_a_process_with_access_control_registers_its_own_broker_and_no_strangers(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "conf").mkdir()
    accounts = "accounts: [{accessKey: operator, secretKey: operator-secret, admin: true}]"
    (tmp_path / "conf" / "plain_acl.yml").write_text(accounts)
    first = json.dumps({"username": "operator", "password": "operator-secret"})
    settings = (
        {"aclEnable": True, "rocketmqHome": str(tmp_path)}
        if kind == "aclEnable"
        else {"authenticationEnabled": True, "initAuthenticationUser": first}
    )
    with Standalone(tmp_path / "data", namesrv_port=0, broker_port=0, **settings) as server:

        async def stranger() -> int:
            async with await Peer.connect(server.namesrv) as peer:
                names = {"brokerName": "x", "clusterName": "c", "brokerId": "0", "brokerAddr": "127.0.0.1:1"}
                return (await peer.call(RequestCode.REGISTER_BROKER, names | {"haServerAddr": ""})).code

        assert asyncio.run(stranger()) == NO_PERMISSION
        config = rmqpy.ClientConfig(
            namesrv=server.namesrv, credentials=rmqpy.Credentials("operator", "operator-secret")
        )
        with rmqpy.Producer(config) as producer:
            producer.send("orders", "paid")


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


def test_name_server_without_access_control_has_no_users(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with testing.broker() as cluster, rmqpy.Admin(cluster.namesrv) as admin:
        assert admin.users() == []
    with pytest.raises(ConfigError, match="with a restart"):
        namesrv_config.read({}).config.change({"authenticationEnabled": "true"})
