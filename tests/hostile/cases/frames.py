"""Bytes: invalid or useless frames, and the requests again with the other header encoding."""

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from hostile.cases.case import COURTESY, Case, request
from wire import BINARY, Frame


def written() -> Iterator[Case]:
    """The cases of hostile.txt."""
    text = (Path(__file__).parents[2] / "vectors" / "hostile.txt").read_text("ascii")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            end, name, recipe = (column.strip() for column in line.split("|", 2))
            yield Case(name, end, composed(recipe))


def composed(recipe: str) -> bytes:
    """Return the bytes of a recipe, whose notation the file explains at its top."""
    items: list[bytes] = []
    opened: list[tuple[int, int]] = []
    header: int | None = None
    for token in re.findall(r"'[^']*'|\S+", recipe):
        if token.startswith("'"):
            items.append(token[1:-1].encode())
        elif token in ("json(", "bin("):
            opened.append((token == "bin(", len(items)))
            header = None
        elif token == "/":
            header = len(items)
        elif token == ")":
            encoding, start = opened.pop()
            size = len(b"".join(items[start:header]))
            content = b"".join(items[start:])
            items[start:] = [struct.pack(">iI", 4 + len(content), encoding << 24 | size) + content]
        elif token.startswith("x"):
            items[-1] *= int(token[1:])
        else:
            items.append(bytes.fromhex(token))
    return b"".join(items)


def in_binary(cases: Iterable[Case]) -> Iterator[Case]:
    """The same once more with the other header."""
    for case in cases:
        frame = Frame.unpack(case.content[4:])
        # Names are at most 32 KiB there, and codes 16 bits.
        if max((len(value) for value in (frame.ext or {}).values()), default=0) < 0x8000:
            frame.encoding, frame.language = BINARY, 0
            yield request(f"{case.name}, binary", case.end, frame, case.target)


def pipelined() -> Iterator[Case]:
    """Good requests with something else right behind them: the connection ends with the first that is none."""
    behind = {
        "zeros": bytes(100),
        "a TLS hello": bytes.fromhex("16030100f8010000f4"),
        "a length of 2 GiB": bytes.fromhex("7fffffff"),
        "a negative length": bytes.fromhex("ffffffff"),
        "a header longer than its frame": bytes.fromhex("00000006 00ffffff") + b"{}",
        "a header that is none": bytes.fromhex("00000008 00000004") + b"[[[[",
    }
    for target, good in COURTESY.items():
        for what, content in behind.items():
            for count in (1, 100):
                name = f"{count} good requests and {what} at a {target}"
                yield Case(name, "hangs up", good.pack() * count + content, target)
