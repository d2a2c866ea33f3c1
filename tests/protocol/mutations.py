"""Mutated golden bytes for the decoders in Python: bodies and fields of every request, JSON, properties, registrations.

    PYTHONPATH=tests python -m protocol.mutations --runs 1000000

Invalid input must be refused with an error of the decoder; any other exception is a finding. The same seed makes
the same inputs. Prints executions, corpus and findings for each decoder.
"""

import argparse
import random
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules

from golden import FOLDER, golden
from rmqpy.config import properties
from rmqpy.errors import RocketMQError
from rmqpy.protocol import fastjson, requests
from rmqpy.protocol.declare import Request, decode
from rmqpy.protocol.requests.registration import RegisterBroker, unpack
from wire import Frame

#: An input: the fields of a header, and a body.
Input = tuple[dict[str, str], bytes]
#: Values that mutation would hardly find.
VALUES = (
    "",
    "-1",
    "0",
    "2147483648",
    "-9223372036854775809",
    "9" * 400,
    "true",
    "null",
    "[]",
    "{}",
    "\0",
    "\ud800",
    "..",
)
PIECES = (
    b"[",
    b"{",
    b'"',
    b"}",
    b":",
    b",",
    b"\\u",
    b"\xff",
    b"null",
    b"-",
    b"9" * 400,
    b"[" * 300,
    b"/*",
    b"NaN",
)
REFUSALS = (RocketMQError, properties.PropertiesError)


@dataclass
class Decoder:
    name: str
    run: Callable[[Input], object]
    corpus: list[Input]
    executions: int = 0
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name:<16} {self.executions:>12,} {len(self.corpus):>8,} {len(self.findings):>8}"


def requests_declared() -> Iterator[type[Request[object]]]:
    for module in iter_modules(requests.__path__):
        for value in vars(import_module(f"{requests.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Request) and value is not Request:
                yield value


def captured() -> list[Input]:
    """Fields and body of every golden frame."""
    found = []
    for path in sorted(FOLDER.glob("*.hex")):
        for name, content in golden(path.stem).items():
            if name in ("request", "reply") and len(content) == 4 + int.from_bytes(content[:4], "big"):
                frame = Frame.unpack(content[4:])
                found.append((frame.ext or {}, frame.body))
    return found


def unfolded() -> list[Input]:
    """The contents of compressed registrations: version, number of topics, topics, filter servers."""

    def part(text: bytes) -> bytes:
        return len(text).to_bytes(4, "big") + text

    topic = b'orders 4 2 6 SINGLE_TAG {"message.type":"NORMAL"}'
    version = part(b'{"counter":1,"stateVersion":0,"timestamp":1}')
    return [
        ({}, version + count.to_bytes(4, "big") + part(topic) * count + part(b"[]")) for count in range(4)
    ] * 10


def decoders() -> list[Decoder]:
    frames = captured()
    kinds = sorted(set(requests_declared()), key=lambda kind: kind.__name__)

    def fields_and_body(given: Input) -> None:
        ext, body = given
        for kind in kinds[len(body) % 7 :: 7]:
            with suppress(REFUSALS):
                decode(kind, ext, body)

    def registration(given: Input) -> None:
        body = given[1]
        fields = {
            "cluster_name": "c",
            "broker_name": "b",
            "broker_addr": "a",
            "broker_id": 0,
            "ha_server_addr": "",
        }
        is_compressed = len(body) % 2 == 0
        packed = zlib.compress(body, 1) if is_compressed else body
        unpack(RegisterBroker(**fields, compressed=is_compressed, body=packed), len(body) % 500)

    return [
        Decoder("requests", fields_and_body, frames),
        Decoder("json", lambda given: fastjson.loads(given[1]), [frame for frame in frames if frame[1]]),
        Decoder("properties", lambda given: properties.parse_request(given[1].decode("latin-1")), frames),
        Decoder("registrations", registration, [frame for frame in frames if frame[1]] + unfolded()),
    ]


def mutated(rng: random.Random, given: Input) -> Input:
    ext, body = dict(given[0]), bytearray(given[1])
    for _ in range(rng.randrange(1, 4)):
        if ext and rng.random() < 0.4:
            name = rng.choice(sorted(ext))
            value = ext.pop(name)
            if rng.random() < 0.8:
                ext[name] = rng.choice((*VALUES, value[:-1], value + "0", value * 2))
        elif body:
            at = rng.randrange(len(body))
            match rng.randrange(5):
                case 0:
                    body[at] ^= 1 << rng.randrange(8)
                case 1:
                    body[at:at] = rng.choice(PIECES)
                case 2:
                    del body[at : at + rng.randrange(1, 20)]
                case 3:
                    del body[at:]
                case _:
                    body[at:at] = body[at : at + rng.randrange(1, 200)]
        else:
            body += rng.choice(PIECES)
    return ext, bytes(body)


def fuzz(decoder: Decoder, runs: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(runs):
        given = mutated(rng, rng.choice(decoder.corpus))
        try:
            decoder.run(given)
        except REFUSALS:
            pass
        except Exception as error:
            decoder.findings.append(f"{type(error).__name__}: {error}: {given!r}"[:2_000])
        decoder.executions += 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100_000, help="executions in all (100,000)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    print(f"{'decoder':<16} {'executions':>12} {'corpus':>8} {'crashes':>8}")
    found = decoders()
    began = time.monotonic()
    for decoder in found:
        fuzz(decoder, asked.runs // len(found), asked.seed)
        print(decoder, *decoder.findings[:5], sep="\n", flush=True)
    print(f"{sum(decoder.executions for decoder in found):,} executions in {time.monotonic() - began:.0f} s")
    return int(any(decoder.findings for decoder in found))


if __name__ == "__main__":
    sys.exit(main())
