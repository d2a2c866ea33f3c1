"""Every declared request: it reads Apache's own frames, and its declaration is readable."""

import importlib
import pkgutil
from collections import Counter
from typing import Any

import pytest

from golden import FOLDER, golden, golden_frame
from rmqpy.message import MessageQueue
from rmqpy.protocol import requests
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, decode, decode_reply, encode
from rmqpy.protocol.requests.messages import ConsumerSendMessageBack, SendMessage
from rmqpy.remoting import pulls
from wire import Frame

for module in pkgutil.iter_modules(requests.__path__):
    importlib.import_module(f"{requests.__name__}.{module.name}")

DECLARED: list[type[Request[Any]]] = [
    kind
    for kind in Request.__subclasses__()
    # Without a code: the class as written, from which `@request` made the one with slots.
    if kind.__module__.startswith(requests.__name__) and hasattr(kind, "code")
]
BY_CODE = {kind.code: kind for kind in DECLARED}

#: The form of Apache's C++ broker for administrators; ours writes the one that all clients read.
OTHER_FORMS = {"220_reset_push_cpp"}


def captured(piece: str) -> list[str]:
    """Names of the files with a request that we declare, and with this piece uncut."""
    found = []
    for path in sorted(FOLDER.glob("*.hex")):
        pieces = golden(path.stem)
        if piece not in pieces or len(pieces[piece]) - 4 != int.from_bytes(pieces[piece][:4], "big"):
            continue
        if path.stem in OTHER_FORMS:
            continue
        if "request" in pieces and Frame.unpack(pieces["request"][4:]).code in BY_CODE:
            found.append(path.stem)
    return found


@pytest.mark.parametrize("name", captured("request"))
def test_a_frame_of_the_original_is_read(name: str) -> None:
    frame = golden_frame(name, "request")
    kind = BY_CODE[RequestCode(frame.code)]
    ask = decode(kind, frame.ext or {}, frame.body)
    again = encode(ask)
    assert decode(kind, again.ext or {}, again.body) == ask, "what we write, we read"


@pytest.mark.parametrize("name", captured("reply"))
def test_an_answer_of_the_original_is_read(name: str) -> None:
    code, answer = golden_frame(name, "request").code, golden_frame(name, "reply")
    if answer.code == 0:
        decode_reply(BY_CODE[RequestCode(code)], answer.ext or {}, answer.body)


@pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)
def test_every_request_has_a_docstring(kind: type[Request[Any]]) -> None:
    doc = kind.__doc__ or ""
    assert doc
    assert not doc.startswith(f"{kind.__name__}("), "that is the dataclass speaking"


def test_a_code_is_declared_once() -> None:
    codes = Counter(kind.code for kind in DECLARED)
    assert [code for code, count in codes.items() if count > 1] == []


def test_frames_were_found() -> None:
    assert len(captured("request")) > 10


def names_of_the_native_half(code: RequestCode) -> set[str]:
    table = (FOLDER.parent / "request_headers.txt").read_text(encoding="utf-8").splitlines()
    [names] = [line.split()[1:] for line in table if line.split()[0] == str(int(code))]
    return set(names)


def test_hot_requests_that_python_writes_have_the_names_of_the_native_half() -> None:
    send = SendMessage(
        producer_group="g",
        topic="t",
        queue_id=0,
        born_timestamp=0,
        properties="",
        max_reconsume_times=1,
        body=b"x",
    )
    # Names of brokers are for Apache's proxy.
    assert (encode(send).ext or {}).keys() == names_of_the_native_half(SendMessage.code) - {"bname"}
    back = ConsumerSendMessageBack(offset=0, group="g", delay_level=0, max_reconsume_times=1)
    assert (encode(back).ext or {}).keys() >= names_of_the_native_half(ConsumerSendMessageBack.code)
    pull = pulls.request("g", MessageQueue("t", "b", 0), 0, wanted="*", messages_max=1)
    assert pull.keys() == names_of_the_native_half(RequestCode.PULL_MESSAGE) | {"bname"}
