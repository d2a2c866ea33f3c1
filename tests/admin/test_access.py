"""Users and policies through `Admin`: creation, lists, checks, removal."""

import json
from pathlib import Path

import pytest

import rmqpy
from rmqpy import cli, testing
from rmqpy.errors import AuthError


def test_an_administrator_manages_users_and_policies_and_asks_what_they_may() -> None:
    first = json.dumps({"username": "root", "password": "root-secret"})
    with (
        testing.broker(
            authenticationEnabled=True, authorizationEnabled=True, initAuthenticationUser=first
        ) as cluster,
        rmqpy.Admin(
            rmqpy.ClientConfig(namesrv=cluster.namesrv, credentials=rmqpy.Credentials("root", "root-secret"))
        ) as admin,
    ):
        admin.create_user("alice", "alice-secret")
        assert [(user.name, user.is_super, user.is_enabled) for user in admin.users("broker-a")] == [
            ("alice", False, True),
            ("root", True, True),
        ]
        admin.set_rule("alice", "Topic:ord*", ["Pub"], sources=["10.0.0.0/8"])
        assert [(rule.user, rule.resource) for rule in admin.rules("broker-a")] == [("alice", "Topic:ord*")]
        (answer,) = admin.check_access("alice", "Pub", "Topic:orders", "10.0.0.7")
        assert (answer.is_allowed, answer.rule) == (True, "Allow of Pub on Topic:ord*")
        (answer,) = admin.check_access("alice", "Pub", "Topic:orders", "11.0.0.7")
        assert (answer.is_allowed, answer.rule) == (False, "no policy allows it")
        admin.delete_rule("alice", "Topic:ord*")
        assert admin.rules() == []
        admin.update_user("alice", is_enabled=False)
        (answer,) = admin.check_access("alice", "Pub", "Topic:orders", "10.0.0.7")
        assert answer.rule == "disabled"
        admin.delete_user("alice")
        alice = rmqpy.ClientConfig(
            namesrv=cluster.namesrv, credentials=rmqpy.Credentials("alice", "alice-secret")
        )
        with rmqpy.Admin(alice) as nobody, pytest.raises(AuthError):
            nobody.users()


ACCOUNTS = """
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- {accessKey: billing, secretKey: billing-secret, defaultTopicPerm: SUB, topicPerms: ['orders=PUB']}
- {accessKey: operator, secretKey: operator-secret, admin: true}
"""


def test_accounts_of_the_first_kind_are_migrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    with testing.broker() as cluster, rmqpy.Admin(cluster.namesrv) as admin:
        admin.create_user("operator", "another-secret")
        assert cli.run(["acl", "migrate", str(file), "-n", cluster.namesrv]) == 0
        printed = capsys.readouterr()
        assert "10.10.103.*" in printed.err
        assert "secret" not in printed.out + printed.err
        users = {user.name: user.is_super for user in admin.users()}
        assert users == {"billing": False, "operator": False}, "one that is there stays as it is"
        for action, resource, is_allowed in (
            ("Pub", "Topic:orders", True),
            ("Sub", "Topic:orders", False),
            ("Sub", "Topic:another", True),
            ("Sub", "Group:g", False),
            ("Pub", "Topic:RMQ_SYS_TRACE_TOPIC", True),
        ):
            (answer,) = admin.check_access("billing", action, resource, "10.0.0.7")
            assert answer.is_allowed == is_allowed, (action, resource, answer)
        file.write_text("accounts: [{accessKey: billing, secretKey: short}]")
        assert cli.run(["acl", "migrate", str(file), "-n", cluster.namesrv]) != 0
        assert "account billing: secretKey has fewer" in capsys.readouterr().err
