"""The codecs of Pydantic and msgspec, and the application of FastAPI in examples/."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy.server import Standalone
from waiting import until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def models() -> list[Any]:
    pydantic, msgspec = pytest.importorskip("pydantic"), pytest.importorskip("msgspec")
    from rmqpy.contrib.msgspec import MsgspecCodec
    from rmqpy.contrib.pydantic import PydanticCodec

    class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        id: str
        total: float

    class Struct(msgspec.Struct):  # type: ignore[misc,name-defined]
        id: str
        total: float

    return [
        (PydanticCodec(), Model),
        (MsgspecCodec(), Struct),
        (MsgspecCodec("msgpack"), Struct),
    ]


@pytest.mark.parametrize("number", range(3), ids=["pydantic", "msgspec", "msgpack"])
def test_models_survive_and_other_bodies_are_refused(number: int) -> None:
    codec, kind = models()[number]
    value = kind(id="A-1", total=4.5)
    assert codec.decode(codec.encode(value), kind) == value
    assert codec.decode(codec.encode([value]), list[kind]) == [value]
    for body in (b"", b"?", b"\xff", codec.encode({"id": 5})):
        with pytest.raises(ValueError, match=r".+"):
            codec.decode(body, kind)
    with pytest.raises(TypeError):
        codec.decoder(rmqpy.Producer)


def test_the_web_application_sends_and_bills(server: Standalone, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    with warnings.catch_warnings():
        # It recommends a later httpx.
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

    monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
    spec = importlib.util.spec_from_file_location("orders", EXAMPLES / "web" / "orders.py")
    assert spec is not None
    assert spec.loader is not None
    orders = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "orders", orders)
    spec.loader.exec_module(orders)
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic("web-orders", exist_ok=True)
    with pytest.raises(rmqpy.errors.ClosedError):
        _ = orders.rocketmq.producer
    with TestClient(orders.app) as client:
        assert client.post("/orders", json={"id": "A-1", "total": -1}).status_code == 422
        assert client.post("/orders", json={"id": "A-1", "total": 4.5}).status_code == 202
        until(lambda: client.get("/bills").json() == {"A-1": 4.5})
        assert client.get("/health").json() == {"consuming": True}
        with rmqpy.Producer(server.namesrv) as producer:
            producer.send("web-orders", b'{"id": "A-2", "total": -1}')
        with rmqpy.Admin(server.namesrv) as admin:
            until(lambda: len(list(admin.dlq("web-billing"))) == 1)
    # A second life of the same application, as with a server that reloads.
    with TestClient(orders.app) as client:
        assert client.post("/orders", json={"id": "A-3", "total": 1}).status_code == 202
        until(lambda: "A-3" in client.get("/bills").json())
