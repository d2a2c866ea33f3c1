"""The clients under test behind one set of verbs: Java 5.5.0 and 4.9.8, Go, and rmqpy itself.

A foreign client is a process that reads requests from stdin and writes answers and events to stdout, one JSON
object per line:

    {"id": 1, "verb": "send", "namesrv": .., "topic": .., "mode": "sync|async|oneway|batch|keyed",
     "compression": "zlib|lz4|zstd", "messages": [{"body": <Base64>, "tag", "keys", "properties", "flag"}], "trace"}
    {"id": 7, "verb": "recall", "namesrv", "topic", "handle"}        (Java 5 only)
    {"id": 2, "verb": "listen", "listener": <name>, "namesrv", "group", "topic", "filter", "sql", "ordered",
     "broadcast", "failing", "retries", "trace"}
    {"id": 3, "verb": "stop", "listener": <name>}
    {"id": 4, "verb": "pull", "api": .., "namesrv", "group", "topic", "filter", "count", "timeout_ms"}
    {"id": 5, "verb": "transact", "namesrv", "group", "topic", "messages": [..],
     "decision": "commit|rollback|unknown", "answer": <the same, to brokers that ask; of the group's first request>}
    {"id": 6, "verb": "leave", "group"}
    {"id": 7, "verb": "request", "namesrv", "topic", "messages": [<one>], "timeout_ms"}
    {"id": 8, "verb": "reply", "listener": <name>, "namesrv", "group", "topic"}     (with the request in capitals)
    {"id": 9, "verb": "stop-reply", "listener": <name>}
    {"id": 7, "verb": "mqadmin", "lines": [[..], ..], "timeout_ms"}  (Java only, as is the next)
    {"id": 8, "verb": "mqadmin-names"}

    {"id": 1, "ok": ..} or {"id": 1, "error": <text>}
    {"listener": <name>, "messages": [..]}                           (an event: messages were consumed, or a broker
                                                                      asks about them; then the group is the name)

One request is under way at a time; a reader thread per process collects events.
"""

import base64
import itertools
import json
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from benchmarks.processes import Child

from .messages import MessageSpec, Received, SendOutcome
from .servers import SMALL_JVM

ANSWER_SECONDS_MAX = 45.0
MQADMIN_SECONDS_MAX = 120.0
"""For all command lines of one call; each takes 0.1 s, or 3 s if its client is slow to shut down."""

Decision = Literal["commit", "rollback", "unknown"]
"""A producer's decision about a transaction, or its reply to a check."""


@dataclass(frozen=True)
class Printed:
    """Output of one command line of mqadmin; `exit` is `None` if it did not end."""

    out: str
    err: str
    exit: int | None


class InteropClient(Protocol):
    """A client that sends and consumes for the tests. `pulls` names its ways to pull."""

    @property
    def name(self) -> str: ...

    @property
    def pulls(self) -> tuple[str, ...]: ...

    @property
    def compressions(self) -> tuple[str, ...]: ...

    def send(
        self,
        namesrv: str,
        topic: str,
        messages: Sequence[MessageSpec],
        *,
        mode: str = "sync",
        compression: str = "zlib",
    ) -> list[SendOutcome]: ...

    def pull(
        self,
        namesrv: str,
        topic: str,
        group: str,
        *,
        api: str,
        count: int,
        tags: str = "*",
        seconds: float = 15.0,
    ) -> list[Received]: ...

    def transact(
        self,
        namesrv: str,
        topic: str,
        group: str,
        messages: Sequence[MessageSpec],
        *,
        decision: Decision,
        answer: Decision = "unknown",
    ) -> list[SendOutcome]:
        """Send each in a transaction, by the group's producer here, which is kept. `answer`, to brokers that ask, is
        that of its first call."""

    def asked(self, group: str) -> list[Received]:
        """The checks that brokers sent to the group's producers here."""

    def leave(self, group: str) -> None:
        """Close the group's producer here."""

    def close(self) -> None: ...


class Listener:
    """A push consumer in a client; collects consumed messages, in the order of the events."""

    def __init__(self, client: "ProcessClient", name: str) -> None:
        self._client = client
        self.name = name

    def consumed(self) -> list[Received]:
        return self._client.consumed(self.name)

    def take(self) -> list[Received]:
        """Return and drop the messages consumed since the last call."""
        return self._client.take(self.name)

    def wait_for(self, count: int, seconds: float = 20.0) -> list[Received]:
        """Return the consumed messages once there are `count`; raises after the timeout."""
        return self._client.wait_for(self.name, count, seconds)

    def stop(self) -> list[Received]:
        """Shut the consumer down; everything it consumed."""
        self._client.stop(self.name)
        return self.consumed()


class ProcessClient:
    """A foreign client in a separate process. Any thread may ask; requests run one after the other."""

    def __init__(
        self,
        name: str,
        child: Child,
        *,
        pulls: tuple[str, ...] = (),
        compressions: tuple[str, ...] = ("zlib",),
    ) -> None:
        self.name = name
        self.pulls = pulls
        self.compressions = compressions
        self.child = child
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._consumed: dict[str, list[Received]] = defaultdict(list)
        self._arrived = threading.Condition()
        self._asked = 0
        self._names = itertools.count()
        self._asking = threading.Lock()
        self._reader = threading.Thread(target=self._read, name=f"read {name}", daemon=True)
        self._reader.start()

    def send(
        self,
        namesrv: str,
        topic: str,
        messages: Sequence[MessageSpec],
        *,
        mode: str = "sync",
        compression: str = "zlib",
        namespace: str | None = None,
        trace: bool = False,
        credentials: tuple[str, str] | None = None,
        tls: bool = False,
    ) -> list[SendOutcome]:
        """`namespace`, as of all verbs: for Java's clients; `credentials` and `tls`: for Go's."""
        described = [_described(message) for message in messages]
        results = self._ask(
            "send",
            namesrv=namesrv, topic=topic, mode=mode, compression=compression, messages=described,
            namespace=namespace, trace=trace, tls=tls, **_signed(credentials),
        )  # fmt: skip
        return [SendOutcome(**result) for result in results]

    def recall(self, namesrv: str, topic: str, handle: str) -> str:
        """Recall a timed message; return its id. Raises `RuntimeError` with the client's error."""
        recalled: str = self._ask("recall", namesrv=namesrv, topic=topic, handle=handle, compression="zlib")
        return recalled

    def pull(
        self,
        namesrv: str,
        topic: str,
        group: str,
        *,
        api: str,
        count: int,
        tags: str = "*",
        seconds: float = 15.0,
        namespace: str | None = None,
        credentials: tuple[str, str] | None = None,
        tls: bool = False,
    ) -> list[Received]:
        pulled = self._ask(
            "pull",
            namesrv=namesrv, topic=topic, group=group, api=api, filter=tags,
            count=count, timeout_ms=round(seconds * 1000), namespace=namespace, tls=tls, **_signed(credentials),
        )  # fmt: skip
        return [_received(message) for message in pulled]

    def transact(
        self,
        namesrv: str,
        topic: str,
        group: str,
        messages: Sequence[MessageSpec],
        *,
        decision: Decision,
        answer: Decision = "unknown",
    ) -> list[SendOutcome]:
        described = [_described(message) for message in messages]
        results = self._ask(
            "transact",
            namesrv=namesrv, topic=topic, group=group, messages=described, decision=decision, answer=answer,
        )  # fmt: skip
        # Java's result of a transaction does not say where the half is.
        return [SendOutcome(**{"offset_id": ""} | result) for result in results]

    def asked(self, group: str) -> list[Received]:
        return self.consumed(group)

    def leave(self, group: str) -> None:
        self._ask("leave", group=group)

    def listen(
        self,
        namesrv: str,
        topic: str,
        group: str,
        *,
        tags: str = "*",
        sql: str | None = None,
        ordered: bool = False,
        broadcast: bool = False,
        broker_assigns: bool = False,
        namespace: str | None = None,
        trace: bool = False,
        credentials: tuple[str, str] | None = None,
        tls: bool = False,
    ) -> Listener:
        """Start a push consumer at the beginning of the topic, or where its group has committed. `sql`: not by tags."""
        return self._listen(
            group,
            namesrv=namesrv, topic=topic, filter=tags, sql=sql, ordered=ordered, broadcast=broadcast,
            broker_assigns=broker_assigns, namespace=namespace, trace=trace, tls=tls, **_signed(credentials),
        )  # fmt: skip

    def pops(self, api: str, **fields: object) -> dict[str, Any]:
        """One of the Java client's POP calls: pop, ack, batch-ack, change or notify."""
        answer: dict[str, Any] = self._ask("pop", api=api, **fields)
        return answer

    def listen_and_fail(
        self,
        namesrv: str,
        topic: str,
        group: str,
        *,
        retries: int,
        namespace: str | None = None,
        broker_assigns: bool = False,
    ) -> Listener:
        """The same with a consumer that returns every message, so often before it is given up."""
        return self._listen(
            group,
            namesrv=namesrv, topic=topic, filter="*", failing=True, retries=retries, namespace=namespace,
            broker_assigns=broker_assigns,
        )  # fmt: skip

    def _listen(self, group: str, **fields: object) -> Listener:
        name = f"{group}-{next(self._names)}"
        self._ask("listen", listener=name, group=group, **fields)
        return Listener(self, name)

    def request(
        self, namesrv: str, topic: str, body: bytes, *, seconds: float
    ) -> tuple[bytes, dict[str, str]]:
        """Return body and properties of the reply. Raises `RuntimeError` with the client's error if there is none."""
        described = [_described(MessageSpec(body))]
        timeout_ms = round(seconds * 1000)
        reply = self._ask(
            "request",
            seconds + ANSWER_SECONDS_MAX,
            namesrv=namesrv,
            topic=topic,
            messages=described,
            timeout_ms=timeout_ms,
        )
        return base64.b64decode(reply["body"]), reply["properties"]

    @contextmanager
    def replying(self, namesrv: str, topic: str, group: str) -> Iterator[None]:
        """A push consumer that replies to requests with their bodies in capitals."""
        name = f"{group}-{next(self._names)}"
        self._ask("reply", listener=name, group=group, namesrv=namesrv, topic=topic)
        try:
            yield
        finally:
            self._ask("stop-reply", listener=name)

    def mqadmin(self, *args: str) -> str:
        """Run Apache's command line tool; return its output. Raises if it complained."""
        (printed,) = self.mqadmin_all([args])
        if "Exception" in printed.err:
            raise RuntimeError(f"mqadmin {' '.join(args)}:\n{printed.err}")
        return printed.out

    def mqadmin_all(
        self, lines: Sequence[Sequence[str]], seconds: float = MQADMIN_SECONDS_MAX
    ) -> list[Printed]:
        """Run several command lines concurrently; return the output of each. One that exceeds the time is abandoned."""
        answers = self._ask(
            "mqadmin", seconds + ANSWER_SECONDS_MAX, lines=lines, timeout_ms=round(seconds * 1000)
        )
        return [Printed(answer["out"], answer["err"], answer.get("exit")) for answer in answers]

    def dashboard(self, namesrv: str, **of: str) -> dict[str, str]:
        """Send the requests of Apache's dashboard; return the result of each call by name."""
        outcomes: dict[str, str] = self._ask("dashboard", 120.0, namesrv=namesrv, **of)
        return outcomes

    def mqadmin_names(self) -> list[str]:
        """All commands the tool has."""
        names: list[str] = self._ask("mqadmin-names")
        return names

    def consumed(self, listener: str) -> list[Received]:
        with self._arrived:
            return list(self._consumed[listener])

    def take(self, listener: str) -> list[Received]:
        with self._arrived:
            return self._consumed.pop(listener, [])

    def wait_for(self, listener: str, count: int, seconds: float) -> list[Received]:
        with self._arrived:
            self._arrived.wait_for(lambda: len(self._consumed[listener]) >= count, seconds)
            consumed = list(self._consumed[listener])
        if len(consumed) < count:
            raise TimeoutError(f"{self.name} consumed {len(consumed)} of {count} messages in {seconds:.0f} s")
        return consumed

    def stop(self, listener: str) -> None:
        self._ask("stop", listener=listener)

    def kill(self) -> None:
        """Kill the process; its earlier output is read to the end."""
        self.child.kill()
        self._reader.join()

    def close(self) -> None:
        self.child.stdin.close()
        self.child.stop()
        self._reader.join()

    def _ask(self, verb: str, timeout: float = ANSWER_SECONDS_MAX, **fields: object) -> Any:
        with self._asking:
            return self._ask_alone(verb, timeout, **fields)

    def _ask_alone(self, verb: str, timeout: float, **fields: object) -> Any:
        self._asked += 1
        asked = self._asked
        self.child.stdin.write(json.dumps({"id": asked, "verb": verb, **fields}).encode() + b"\n")
        self.child.stdin.flush()
        deadline = time.monotonic() + timeout
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"{self.name} did not answer {verb}:\n{self.child.log_tail()}") from None
            if answer["id"] in (asked, None):
                break  # Answers to requests given up before are passed over.
        if "error" in answer:
            raise RuntimeError(f"{self.name} failed to {verb}: {answer['error']}")
        return answer["ok"]

    def _read(self) -> None:
        try:
            for line in self.child.stdout:
                if line.endswith(b"\n"):  # Not so when the process was killed while it wrote.
                    self._take(json.loads(line))
        except Exception as failure:
            self._answers.put({"id": None, "error": f"unreadable output: {failure!r}"})
            raise

    def _take(self, event: dict[str, Any]) -> None:
        if "id" in event:
            self._answers.put(event)
            return
        messages = [_received(message) for message in event["messages"]]
        with self._arrived:
            self._consumed[event["listener"]] += messages
            self._arrived.notify_all()


def start_java(
    build: Path, version: str, folder: Path, name: str, *options: str, inside: Sequence[str] = ()
) -> ProcessClient:
    """A JVM with rocketmq-client `version`; `inside` is the command that runs another one."""
    home = folder / name
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>\n")  # mqadmin 4.9 does not do without.
    classes = f"{build / 'classes'}:{build / 'lib'}/*"
    command = [
        *inside,
        "java",
        *SMALL_JVM,
        "-Xmx192m",
        *options,
        f"-Duser.home={home}",
        "-cp",
        classes,
        "interop.InteropClient",
    ]
    child = Child(name, command, home, is_piped=True)
    compressions = ("zlib",) if version.startswith("4.") else ("zlib", "lz4", "zstd")
    return ProcessClient(name, child, pulls=("old", "lite", "assign"), compressions=compressions)


def start_go(build: Path, folder: Path, name: str, inside: Sequence[str] = ()) -> ProcessClient:
    """A process with the Go client; `inside` is the command that runs another one."""
    home = folder / name
    home.mkdir()
    env = {"ROCKETMQ_GO_LOG_LEVEL": "warn"}
    return ProcessClient(
        name, Child(name, [*inside, str(build / "peer")], home, env=env, is_piped=True), pulls=("poll",)
    )


def _signed(credentials: tuple[str, str] | None) -> dict[str, object]:
    return {} if credentials is None else {"access_key": credentials[0], "secret_key": credentials[1]}


def _described(message: MessageSpec) -> dict[str, object]:
    return {
        "body": base64.b64encode(message.body).decode(),
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "flag": message.flag,
    }


def _received(described: dict[str, Any]) -> Received:
    # Java's JSON library omits nulls.
    return Received(**{"tag": None, "keys": None} | described | {"body": base64.b64decode(described["body"])})
