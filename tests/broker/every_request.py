"""A request of every code with the users it is refused to, for tests of required permissions."""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from broker.signing import add_user, entry, signed
from rmqpy import broker, namesrv  # noqa: F401 - with them every request is declared
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, encode

#: Header fields of hot requests that Python does not declare.
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
#: Those of the package: other tests declare requests of their own.
DECLARED = {
    kind.code: kind
    for kind in Request.__subclasses__()
    if "code" in vars(kind) and kind.__module__.startswith("rmqpy.")
}
#: Needed for the contents of the record, which the request only names.
BY_RECORD = {
    RequestCode.END_TRANSACTION,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.BATCH_ACK_MESSAGE,
}
NO_PERMISSION = 16


def sample(kind: Any, path: str = "") -> Any:
    """Return a value of this type with all required members, and the value at `path`."""
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
    """Return header fields and body of a readable request that names its subject."""
    if code in NATIVE:
        return NATIVE[code], b"hello"
    kind = DECLARED.get(code)
    if kind is None:
        return {}, b""
    paths = [need.path for need in kind.needs if need.path]
    ask = sample(kind, paths[-1] if paths else "")
    sent = encode(ask)
    return sent.ext or {}, sent.body or b""


async def wrong_answers(address: str, needy: Collection[RequestCode]) -> list[str]:
    """Return the wrong replies of a server with access control, for all codes: a user without permissions is refused, a
    user with other permissions is refused `needy`, and a user with all permissions and a super user are served."""
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
            if answers[0] != NO_PERMISSION:
                wrong.append(f"{code.name} without a user: {answers[0]}")
            if code in needy and answers[1] != NO_PERMISSION:
                wrong.append(f"{code.name} without rights: {answers[1]}")
        # The permitted requests are last, because some of them delete.
        for code in RequestCode:
            ext, body = request_of(code)
            for name, peer in (("rights", bob), ("super", root)):
                answer = await peer.call(code, ext, body)
                if answer.code == NO_PERMISSION and "no permission to" in (answer.remark or ""):
                    wrong.append(f"{code.name} with {name}: {answer.remark}")
    return wrong
