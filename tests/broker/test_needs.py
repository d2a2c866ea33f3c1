"""Every request code of a broker: its required permissions, and its result for each kind of user."""

import pytest

from broker.conftest import Start
from broker.every_request import BY_RECORD, DECLARED, sample, wrong_answers
from rmqpy import _native
from rmqpy.protocol import access
from rmqpy.protocol.access import Action, ResourceKind
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests import clients, topics


async def test_every_served_code_declares_its_needs(start: Start) -> None:
    table = (await start()).broker.table()
    silent = []
    for code, by in table.items():
        if by == "native":
            declared = DECLARED.get(code)
            hot = [(kind, set(actions)) for kind, _, actions in _native.hot_needs(code) or ()]
            if not hot and code not in BY_RECORD:
                silent.append(code.name)
            if declared is not None and code not in BY_RECORD:
                # Where both halves know it, they say the same.
                cold = [(need.kind.value, {each.value for each in need.actions}) for need in declared.needs]
                assert sorted(map(str, hot)) == sorted(map(str, cold)), code.name
        elif by != "not served" and DECLARED[code].needs is access.UNDECLARED:
            silent.append(code.name)
    assert not silent
    assert sum(by != "not served" for by in table.values()) >= 70


async def test_every_code_is_refused_only_to_users_without_permission(start: Start) -> None:
    cluster = await start(
        authenticationEnabled="true",
        authorizationEnabled="true",
        initAuthenticationUser='{"username":"root","password":"root-secret"}',
    )
    needy = {
        code
        for code, by in cluster.broker.table().items()
        if by != "not served"
        and code not in BY_RECORD
        and not (code in DECLARED and all(need.is_optional for need in DECLARED[code].needs))
    }
    wrong = await wrong_answers(cluster.broker.address, needy)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code", sorted(DECLARED))
def test_needs_name_existing_fields(code: RequestCode) -> None:
    kind = DECLARED[code]
    for need in kind.needs:
        assert need.actions, code.name
        if need.kind is not ResourceKind.CLUSTER:
            found = access.needed((need,), sample(kind, need.path))
            names = [name for found_kind, name, _ in found if found_kind == need.kind.value]
            assert names, f"{code.name}: {need.path} leads to nothing"


def test_a_need_whose_field_is_empty_is_that_of_the_cluster_unless_it_is_optional() -> None:
    ask = topics.GetTopicConfig(topic="")
    assert access.needed(ask.needs, ask) == [("Cluster", "", [Action.UPDATE.value])]
    leaving = clients.UnregisterClient(client_id="c1", producer_group="p")
    assert access.needed(leaving.needs, leaving) == []
