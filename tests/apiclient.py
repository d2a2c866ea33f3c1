"""A client of the console's API without a browser."""

import json
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any, NamedTuple

#: The headers that a change needs, in addition to a server that allows it.
CHANGE = {"X-Rmqpy-Console": "change", "Content-Type": "application/json"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


Ask = Callable[..., Answer]


def api_of(address: str | None) -> Ask:
    """`ask("/topics")`, `ask("/topics", method="POST", body={…}, headers={…})`."""
    assert address is not None

    def ask(
        path: str,
        *,
        method: str = "GET",
        body: Any = None,
        headers: dict[str, str] | None = None,
        api: bool = True,
    ) -> Answer:
        connection = HTTPConnection(address, timeout=60)
        try:
            sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, f"/api/v1{path}" if api else path, sent, headers or {})
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, answer.read().decode())
        finally:
            connection.close()

    return ask
