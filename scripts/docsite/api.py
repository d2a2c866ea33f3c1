"""API pages: everything that the packages export, each on a page about its subject.

A class lists its constructor, fields, properties and methods, inherited ones too. An asynchronous twin lists only what
differs. A public name without a page ends the build.
"""

import ast
import builtins
import dataclasses
import enum
import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docsite import failures
from docsite.docstrings import markdown
from docsite.sources import Sources, annotation

#: Subjects, and the names on their page. A name without a module is one of rmqpy.
SUBJECTS: Final[dict[str, list[str]]] = {
    "Producers": ["Producer", "AsyncProducer", "SendFuture", "SendResult", "SendStatus", "SendAttempt"],
    "Transactions": ["Transaction", "AsyncTransaction", "TransactionState"],
    "Queue selectors": ["QueueSelector", "round_robin", "at_random", "by_sharding_key"],
    "Push consumers": ["PushConsumer", "AsyncPushConsumer", "ConsumerStats"],
    "Results of handlers": ["ConsumeResult", "BatchResult", "Retry", "Reply"],
    "Pull consumers": ["PullConsumer", "AsyncPullConsumer", "Rebalance", "OffsetStore"],
    "Work queues": ["SimpleConsumer", "AsyncSimpleConsumer"],
    "Messages": ["Message", "MessageFields", "ReceivedMessage", "MessageQueue"],
    "Typed values": ["Codec", "JsonCodec", "Property", "TypedTopic", "AsyncTypedTopic", "read_values"],
    "Filters": ["sql", "Sql"],
    "Range reads": [
        "Catalog",
        "QueueRange",
        "RangeReader",
        "read_range",
        "read_ranges",
        "TopicRead",
        "read_topic",
        "ArrowBatch",
        "column_types",
        "default_columns",
    ],
    "Configuration": ["ClientConfig", "Credentials", "TLS"],
    "Interceptors": ["ProducerInterceptor", "ConsumerInterceptor"],
    "Administration": ["Admin", "AsyncAdmin"],
    "Logging": ["rmqpy.logging.Handler"],
    "OpenTelemetry": ["rmqpy.otel.RocketMQInstrumentor"],
    "Tests": ["rmqpy.testing.broker", "rmqpy.testing.Cluster", "rmqpy.testing.HandClock"],
    "Spark": ["pyspark_rocketmq.register", "pyspark_rocketmq.progress.lag", "pyspark_rocketmq.progress.LagListener"],
}  # fmt: skip
#: Public names that have a page elsewhere, or are modules.
ELSEWHERE: Final = {"__version__", "errors", "logging", "RocketMQError"}


def page(subject: str) -> str:
    return subject.lower().replace(" ", "-") + ".md"


def anchors() -> dict[str, str]:
    """Return the link to each name, from a page of the folder `api`."""
    found: dict[str, str] = {}
    for subject, names in SUBJECTS.items():
        found |= {name.rpartition(".")[2]: f"{page(subject)}#{name.rpartition('.')[2]}" for name in names}
    return found | {name: f"../errors/{name}.md" for name in failures.names()}


def write(folder: Path) -> list[object]:
    """Write the pages below `api/`, and return their part of the navigation."""
    rmqpy = importlib.import_module("rmqpy")
    covered = {name for names in SUBJECTS.values() for name in names if "." not in name} | ELSEWHERE
    if covered != set(rmqpy.__all__):
        sys.exit(
            f"names without an API page, or pages without a name: {sorted(covered ^ set(rmqpy.__all__))}"
        )
    (folder / "api").mkdir()
    sources, links = Sources(), anchors()
    index = [
        "# API",
        "",
        "Everything below is importable from `rmqpy`, unless its name shows another module.",
        "",
    ]
    for subject, names in SUBJECTS.items():
        text = [f"# {subject}", ""]
        for name in names:
            text += _Entry(name, sources, links).lines(twin=_twin(name, names))
        (folder / "api" / page(subject)).write_text("\n".join(text) + "\n", "utf-8")
        shown = ", ".join(
            f"[`{name.rpartition('.')[2]}`]({links[name.rpartition('.')[2]]})" for name in names
        )
        index.append(f"- [{subject}]({page(subject)}): {shown}")
    (folder / "api" / "index.md").write_text("\n".join(index) + "\n", "utf-8")
    return ["api/index.md", *(f"api/{page(subject)}" for subject in SUBJECTS)]


def _twin(name: str, names: list[str]) -> str | None:
    other = name.removeprefix("Async")
    return other if other != name and other in names else None


class _Entry:
    """One public name."""

    def __init__(self, name: str, sources: Sources, links: dict[str, str]) -> None:
        module, _, self._name = name.rpartition(".")
        self._path = f"{module or 'rmqpy'}.{self._name}"
        # Read, not imported: the connector imports PySpark.
        is_read = self._path.startswith("pyspark_rocketmq.")
        self._value = None if is_read else getattr(importlib.import_module(module or "rmqpy"), self._name)
        self._sources = sources
        self._links = links

    def lines(self, *, twin: str | None) -> Iterator[str]:
        yield from (f"## {self._name} {{ #{self._name} }}", "")
        found = self._sources.function(self._value)
        if self._value is None:
            yield from self._read()
        elif isinstance(self._value, type):
            yield from self._class(self._value, twin)
        elif found:
            node, module = found
            yield from _code(self._sources.signature(self._path, node, module))
            yield from self._text(self._value)
        else:
            yield from self._alias()

    def _text(self, value: object, own: str = "") -> Iterator[str]:
        doc = getattr(value, "__doc__", None)
        if doc:
            yield from (markdown(doc, self._links, own or self._name), "")

    def _read(self) -> Iterator[str]:
        """A function or class whose package is not imported."""
        node = self._sources.find(self._path)
        if isinstance(node, ast.FunctionDef):
            yield from _code(self._sources.signature(self._path, node, self._path.rpartition(".")[0]))
        else:
            assert isinstance(node, ast.ClassDef), self._path
            yield from _code(f"class {self._path}")
        yield from (markdown(ast.get_docstring(node) or "", self._links, self._name), "")

    def _alias(self) -> Iterator[str]:
        """The name of a type, such as that of a function."""
        module = importlib.import_module("rmqpy")._MODULES[self._name]
        node = self._sources.find(f"{module}.{self._name}")
        assert isinstance(node, ast.Assign), self._path
        yield from _code(f"{self._path} = {ast.unparse(node.value)}")
        yield from (self._sources.comment(module, node), "")

    def _class(self, cls: type, twin: str | None) -> Iterator[str]:
        node, module = self._definition(cls)
        constructor = self._constructor(cls, node, module)
        if constructor:
            yield from _code(f"class {constructor}")
        else:
            yield from _code(f"class {self._path}")
        yield from self._text(cls)
        init = cls.__dict__.get("__init__") or next(
            (
                base.__dict__["__init__"]
                for base in cls.__mro__
                if "__init__" in base.__dict__ and _is_ours(base)
            ),
            None,
        )
        if init is not None and getattr(init, "__doc__", None) and not dataclasses.is_dataclass(cls):
            yield from self._text(init)
        yield from self._fields(node, module)
        if twin:
            yield from (f"The methods are those of [`{twin}`](#{twin}), as coroutines. What differs:", "")
        for name in sorted(dir(cls)):
            if not name.startswith("_"):
                yield from self._member(cls, name, twin)

    def _definition(self, cls: type) -> tuple[ast.ClassDef, str]:
        for module in (cls.__module__, "rmqpy._native"):
            node = self._sources.find(f"{module}.{cls.__qualname__}")
            if isinstance(node, ast.ClassDef):
                return node, module
        raise LookupError(self._path)

    def _constructor(self, cls: type, node: ast.ClassDef, module: str) -> str | None:
        if issubclass(cls, enum.Enum) or getattr(cls, "_is_protocol", False):
            return None
        if dataclasses.is_dataclass(cls) or hasattr(cls, "_fields") or cls.__mro__[1:2] == (dict,):
            return None
        for base in cls.__mro__:
            if _is_ours(base) and "__init__" in base.__dict__:
                found = self._sources.function(base.__dict__["__init__"])
                return found and self._sources.signature(self._path, *found, result=False)
        made = self._sources.find(f"{module}.{node.name}.__new__")
        if isinstance(made, ast.FunctionDef):
            return self._sources.signature(self._path, made, module, result=False)
        return None

    def _fields(self, node: ast.ClassDef, module: str) -> Iterator[str]:
        rows = []
        for child in node.body:
            if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                name, kind = child.target.id, annotation(child.annotation)
            elif (
                isinstance(child, ast.Assign)
                and isinstance(child.targets[0], ast.Name)
                and len(child.targets) == 1
            ):
                name, kind = child.targets[0].id, ""
                if not isinstance(child.value, ast.Constant):
                    continue
            else:
                continue
            if name.startswith("_"):
                continue
            default = self._sources.value(child.value, module) if child.value is not None else ""
            comment = self._sources.comment(module, child)
            rows.append([f"`{name}`", *(f"`{cell}`" if cell else "" for cell in (kind, default)), comment])
        if rows:
            yield from _table(["field", "type", "value", "meaning"], rows)

    def _member(self, cls: type, name: str, twin: str | None) -> Iterator[str]:
        owner = next((base for base in cls.__mro__ if name in base.__dict__), None)
        if owner is None or not _is_ours(owner):
            return
        value = inspect.getattr_static(cls, name)
        node, module = self._member_source(cls, owner, name, value)
        if node is None:
            return
        doc = ast.get_docstring(node)
        if twin and self._is_as_in(twin, name, doc):
            return
        is_property = isinstance(value, property | functools.cached_property) or any(
            isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list
        )
        yield from (f"### {name} {{ #{self._name}.{name} }}", "")
        if is_property:
            yield from _code(f"{name}: {annotation(node.returns)}" if node.returns else name)
        else:
            is_async = isinstance(node, ast.AsyncFunctionDef) and (
                cls.__name__.startswith("Async") or inspect.iscoroutinefunction(value)
            )
            yield from _code(self._sources.signature(name, node, module, prefix="await " if is_async else ""))
        if doc:
            yield from (markdown(doc, self._links, name), "")

    def _member_source(
        self, cls: type, owner: type, name: str, value: object
    ) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | None, str]:
        found = self._sources.function(value) or self._sources.function(getattr(cls, name, None))
        if found:
            return found
        node = self._sources.find(f"rmqpy._native.{owner.__qualname__}.{name}")
        return (node if isinstance(node, ast.FunctionDef) else None), "rmqpy._native"

    def _is_as_in(self, twin: str, name: str, doc: str | None) -> bool:
        other = getattr(importlib.import_module("rmqpy"), twin)
        if not hasattr(other, name):
            return False
        found, _ = self._member_source(other, other, name, inspect.getattr_static(other, name))
        return (
            doc is None or doc.startswith("As `") or (found is not None and ast.get_docstring(found) == doc)
        )


def _is_ours(cls: type) -> bool:
    package = cls.__module__.partition(".")[0]
    # A native class may call itself a builtin one.
    return package in ("rmqpy", "pyspark_rocketmq") or (
        package == "builtins" and not hasattr(builtins, cls.__name__)
    )


def _code(text: str) -> Iterator[str]:
    yield from ("```python", text, "```", "")


def _table(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    used = [index for index, _ in enumerate(heads) if any(row[index] for row in rows)]
    yield "| " + " | ".join(heads[index] for index in used) + " |"
    yield "|" + "---|" * len(used)
    for row in rows:
        yield "| " + " | ".join(row[index] for index in used) + " |"
    yield ""
