"""Users and policies through Admin: made, listed, asked about, removed."""

import json

import pytest

import rmqpy
from rmqpy import testing
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
        assert [(user.name, user.is_super, user.is_enabled) for user in admin.users()] == [
            ("alice", False, True),
            ("root", True, True),
        ]
        admin.set_rule("alice", "Topic:ord*", ["Pub"], sources=["10.0.0.0/8"])
        assert [(rule.user, rule.resource) for rule in admin.rules()] == [("alice", "Topic:ord*")]
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
