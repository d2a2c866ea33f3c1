"""Codes and errors: tables that must agree with each other."""

import pickle
import re
from pathlib import Path

import pytest

from rmqpy import errors
from rmqpy.protocol import codes, refusals
from rmqpy.protocol.codes import RequestCode, ResponseCode

ROOT = Path(__file__).resolve().parents[2]

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.RocketMQError)
]


def test_t1_our_version_is_a_real_release_and_fits_sixteen_bits() -> None:
    # Java clients require at least 232 before they send SQL expressions.
    assert 232 <= codes.VERSION < 1 << 15


def test_pop_codes_exceed_the_binary_header() -> None:
    # They are served in JSON frames only, and never under the number that their lower 16 bits form.
    assert {code & 0xFFFF for code in RequestCode if code > 0xFFFF}.isdisjoint(set(RequestCode))


def rust_constants(module: str) -> dict[str, int]:
    """The constants of one module of `codes.rs`."""
    source = (ROOT / "rust" / "src" / "remoting" / "codes.rs").read_text(encoding="utf-8")
    body = source.split(f"pub mod {module} {{")[1].split("\n}")[0]
    return {
        name: int(number.replace("_", ""))
        for name, number in re.findall(r"pub(?:\(crate\))? const (\w+): i32 = ([\d_]+);", body)
    }


@pytest.mark.parametrize(("module", "table"), [("request", RequestCode), ("response", ResponseCode)])
def test_rust_gives_a_code_the_same_name(module: str, table: type[RequestCode] | type[ResponseCode]) -> None:
    named = rust_constants(module)
    assert len(named) >= 10
    assert {name: table[name].value for name in named} == named


def test_rust_and_python_announce_the_same_release() -> None:
    source = (ROOT / "rust" / "src" / "remoting" / "codes.rs").read_text(encoding="utf-8")
    assert f"pub const VERSION: i32 = {codes.VERSION};" in source


def test_every_code_with_a_meaning_is_a_response_code() -> None:
    assert set(ResponseCode) >= set(refusals._MEANINGS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_can_be_pickled(kind: type[errors.RocketMQError]) -> None:
    error = kind("what happened", code=17, broker="broker-a", hint="what to do")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is kind
    assert (str(copy), vars(copy)) == (str(error), vars(error))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_documented_error_tree_is_complete(kind: type[errors.RocketMQError]) -> None:
    assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("code", "kind", "builtin"),
    [
        (ResponseCode.TOPIC_NOT_EXIST, errors.TopicNotFound, errors.RouteError),
        (ResponseCode.NO_PERMISSION, errors.AuthError, PermissionError),
        (ResponseCode.SYSTEM_BUSY, errors.FlowControl, errors.BrokerError),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, errors.Unsupported, errors.BrokerError),
        (ResponseCode.GO_AWAY, errors.ConnectError, ConnectionError),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, errors.GroupNotFound, errors.BrokerError),
        (ResponseCode.CONTROLLER_NOT_LEADER, errors.BrokerError, errors.RocketMQError),
    ],
)
def test_response_code_becomes_exception(
    code: ResponseCode, kind: type[errors.RocketMQError], builtin: type[Exception]
) -> None:
    error = refusals.from_response(code, "why", broker="broker-a")
    assert type(error) is kind
    assert isinstance(error, builtin)
    assert (error.code, error.remark, error.broker) == (code, "why", "broker-a")


def test_missing_topic_error_names_the_command() -> None:
    error = refusals.from_response(ResponseCode.TOPIC_NOT_EXIST, "no route", topic="orders")
    assert str(error) == "no route (code 17); create it: rmqpy topic create orders"
