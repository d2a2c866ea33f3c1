"""Request codes that are not served: unknown, of other roles, of replies, at the ends of their range."""

from collections.abc import Iterator

from hostile.cases.case import Case, request, send
from rmqpy.protocol.codes import RequestCode as Code
from wire import BINARY, ONEWAY, RESPONSE, Frame

#: Unassigned codes, response codes, or codes that only clients serve.
UNSERVED = {
    "no request": 0,
    "an answer's, system error": 1,
    "an answer's, flush timeout": 8,
    "an answer's, polling": 210,
    "a client's, members changed": Code.NOTIFY_CONSUMER_IDS_CHANGED,
    "a client's, state of a transaction": Code.CHECK_TRANSACTION_STATE,
    "a client's, offsets reset": Code.RESET_CONSUMER_CLIENT_OFFSET,
    "unknown": 32_001,
    "negative": -1,
    "least of 16 bits": -(2**15),
    "greatest of 16 bits": 2**15 - 1,
}
WIDE = {"least": -(2**31), "greatest": 2**31 - 1, "beyond 16 bits": 2**16 + Code.SEND_MESSAGE_V2}


def codes() -> Iterator[Case]:
    for target in ("broker", "namesrv"):
        for what, code in UNSERVED.items():
            for encoding, how in enumerate(("JSON", "binary")):
                frame = Frame(
                    code, ext=send(), body=b"x" * 100, encoding=encoding, language=0 if encoding else "JAVA"
                )
                yield request(f"code at a {target}: {what}, {how}", 3, frame, target)
            oneway = Frame(code, ext=send(), flag=ONEWAY)
            yield request(f"code at a {target}: {what}, one-way", "ignored", oneway, target)
        for what, code in WIDE.items():
            yield request(f"code at a {target}: {what}", 3, Frame(code, ext=send()), target)
    for what, language in {"unknown": "KLINGON", "empty": "", "of 10,000 letters": "J" * 10_000}.items():
        frame = Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"x", language=language)
        yield request(f"send in a language {what}", 0, frame)
    frame = Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"x", language=-1, encoding=BINARY)
    yield request("send in a language beyond all, binary", 0, frame)
    good = Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"x", flag=RESPONSE)
    yield request("a send that says it is an answer", "ignored", good)
    both = Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"x", flag=RESPONSE | ONEWAY)
    yield request("a send that says it is a one-way answer", "ignored", both)
