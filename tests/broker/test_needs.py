"""Every request code of a broker: what it needs, and what becomes of it for whom."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from broker.conftest import Start
from broker.signing import add_user, entry, signed
from rmqpy import _native
from rmqpy.protocol import access
from rmqpy.protocol.access import Action, ResourceKind
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, encode
from rmqpy.protocol.requests import (  # noqa: F401
    access as _access,
)
from rmqpy.protocol.requests import (
    clients,
    topics,
)

#: What a hot request that Python declares nowhere has in its header.
SEND = {
    "a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
    "i": "UNIQ_KEY\x01AC110001000018B4AAC2000000000001\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
PULL = {
    "consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    "expressionType": "TAG",
}  # fmt: skip
NATIVE: Mapping[RequestCode, Mapping[str, str]] = {
    RequestCode.SEND_MESSAGE_V2: SEND,
    RequestCode.SEND_BATCH_MESSAGE: SEND,
    RequestCode.PULL_MESSAGE: PULL,
    RequestCode.LITE_PULL_MESSAGE: PULL,
}
DECLARED = {kind.code: kind for kind in Request.__subclasses__() if "code" in vars(kind)}
#: Needed for what the record is about, which the request only points at.
BY_RECORD = {RequestCode.END_TRANSACTION, RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUMER_SEND_MSG_BACK}
NO_PERMISSION = 16


def sample(kind: Any, path: str = "") -> Any:
    """A value of this type with everything that it must have, and what `path` leads to."""
    origin, arguments = get_origin(kind), get_args(kind)
    if NoneType in arguments:
        return sample(next(each for each in arguments if each is not NoneType), path)
    if origin in (list, set, tuple):
        return [sample(arguments[0], path)] if path else []
    if origin is dict or kind is object:
        return {}
    if kind in (str, int, bool, float, bytes):
        return {str: "t", int: 0, bool: False, float: 0.0, bytes: b"x"}[kind]
    if not hasattr(kind, "__dataclass_fields__"):
        return next(iter(kind))
    return kind(
        **{
            each.name: sample(get_type_hints(kind)[each.name], _below(path, each.name))
            for each in fields(kind)
            if _is_needed(each) or path.removesuffix("[]").split(".")[0].removesuffix("[]") == each.name
        }
    )


def _is_needed(each: Any) -> bool:
    return bool(each.default is MISSING and each.default_factory is MISSING)


def _below(path: str, name: str) -> str:
    first, _, rest = path.partition(".")
    return (rest or "-") if first.removesuffix("[]") == name else ""


def request_of(code: RequestCode) -> tuple[Mapping[str, str], bytes]:
    """Header fields and body of a request that can be read and names what it is about."""
    if code in NATIVE:
        return NATIVE[code], b"hello"
    kind = DECLARED.get(code)
    if kind is None:
        return {}, b""
    paths = [need.path for need in kind.needs if need.path]
    ask = sample(kind, paths[-1] if paths else "")
    sent = encode(ask)
    return sent.ext or {}, sent.body or b""


async def test_every_code_a_broker_serves_says_what_it_needs(start: Start) -> None:
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


async def test_every_code_is_refused_to_who_may_not_and_to_nobody_else(start: Start) -> None:
    cluster = await start(
        authenticationEnabled="true",
        authorizationEnabled="true",
        initAuthenticationUser='{"username":"root","password":"root-secret"}',
    )
    address, table = cluster.broker.address, cluster.broker.table()
    async with (
        await signed(address, "root") as root,
        await signed(address) as nobody,
        await signed(address, "alice") as alice,
        await signed(address, "bob") as bob,
    ):
        await add_user(root, "alice", entry("Topic:another", "All"), entry("Group:another", "All"))
        await add_user(root, "bob", entry("*", "All"))
        wrong = []
        for code in RequestCode:
            ext, body = request_of(code)
            answers = [(await peer.call(code, ext, body)).code for peer in (nobody, alice)]
            may_anybody = code in DECLARED and all(need.is_optional for need in DECLARED[code].needs)
            is_served = table[code] != "not served"
            if answers[0] != NO_PERMISSION:
                wrong.append(f"{code.name} without a user: {answers[0]}")
            if is_served and not may_anybody and code not in BY_RECORD and answers[1] != NO_PERMISSION:
                wrong.append(f"{code.name} without rights: {answers[1]}")
        # What they may is last: among it are deletions.
        for code in RequestCode:
            ext, body = request_of(code)
            for name, peer in (("rights", bob), ("super", root)):
                answer = await peer.call(code, ext, body)
                if answer.code == NO_PERMISSION and "no permission to" in (answer.remark or ""):
                    wrong.append(f"{code.name} with {name}: {answer.remark}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code", sorted(DECLARED))
def test_a_need_names_a_field_that_is_there(code: RequestCode) -> None:
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
