"""Sources: definitions by their full name, as the source or the stub writes them.

Signatures and fields come from here, since both show types as the author wrote them; what a name stands for comes from
the imported packages.
"""

import ast
import functools
import inspect
from pathlib import Path
from typing import Final

from docsite.pages import ROOT

PACKAGES: Final = (ROOT / "python" / "rmqpy", ROOT / "spark" / "pyspark_rocketmq")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """Functions, classes and constants of both packages."""

    def __init__(self) -> None:
        self._found: dict[str, ast.AST] = {}
        self._lines: dict[str, list[str]] = {}
        for package in PACKAGES:
            for path in sorted([*package.rglob("*.py"), package / "_native.pyi"]):
                if path.exists():
                    self._read(path, package.parent)

    def _read(self, path: Path, root: Path) -> None:
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text("utf-8")
        self._lines[module] = text.splitlines()
        for node in ast.parse(text).body:
            self._add(module, node)

    def _add(self, scope: str, node: ast.AST) -> None:
        if isinstance(node, ast.ClassDef):
            self._found[f"{scope}.{node.name}"] = node
            for child in node.body:
                self._add(f"{scope}.{node.name}", child)
        elif isinstance(node, Function):
            # The last of several overloads is the one with a body.
            self._found[f"{scope}.{node.name}"] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    self._found[f"{scope}.{target.id}"] = node
        elif isinstance(node, ast.If):
            for child in [*node.body, *node.orelse]:
                self._add(scope, child)

    def find(self, name: str) -> ast.AST | None:
        """Return the definition of a full name."""
        return self._found.get(name)

    def function(self, value: object) -> tuple[Function, str] | None:
        """Return the definition of a function or property, and its module."""
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools.cached_property):
            value = value.func
        elif isinstance(value, staticmethod | classmethod):
            value = value.__func__
        value = inspect.unwrap(value) if callable(value) else value
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        node = self.find(f"{module}.{name}")
        return (node, str(module)) if isinstance(node, Function) else None

    def comment(self, module: str, node: ast.AST) -> str:
        """Return the `#:` comment above a field."""
        assert isinstance(node, ast.stmt)
        lines = self._lines[module]
        end = begin = node.lineno - 1
        while begin and lines[begin - 1].lstrip().startswith("#:"):
            begin -= 1
        return " ".join(line.strip().removeprefix("#:").strip() for line in lines[begin:end])

    def signature(
        self, name: str, node: Function, module: str, *, prefix: str = "", result: bool = True
    ) -> str:
        """Return the signature of a function, without its first parameter if that is the object or its class."""
        parts = self._parameters(node.args, module)
        returned = f" -> {annotation(node.returns)}" if result and node.returns is not None else ""
        line = f"{prefix}{name}({', '.join(parts)}){returned}"
        if len(line) > 88:
            line = f"{prefix}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"
        return line

    def _parameters(self, args: ast.arguments, module: str) -> list[str]:
        positional = [*args.posonlyargs, *args.args]
        missing: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults))
        parts: list[str] = []
        for index, (arg, default) in enumerate(zip(positional, [*missing, *args.defaults], strict=True)):
            if index or arg.arg not in ("self", "cls"):
                parts.append(self._parameter(arg, default, module))
            if parts and index == len(args.posonlyargs) - 1:
                parts.append("/")
        if args.vararg:
            parts.append("*" + self._parameter(args.vararg, None, module))
        elif args.kwonlyargs:
            parts.append("*")
        parts += [
            self._parameter(arg, default, module)
            for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
        ]
        if args.kwarg:
            parts.append("**" + self._parameter(args.kwarg, None, module))
        return parts

    def _parameter(self, arg: ast.arg, default: ast.expr | None, module: str) -> str:
        text = f"{arg.arg}: {annotation(arg.annotation)}" if arg.annotation else arg.arg
        if default is None:
            return text
        return (
            f"{text} = {self.value(default, module)}"
            if arg.annotation
            else f"{text}={self.value(default, module)}"
        )

    def value(self, default: ast.expr, module: str) -> str:
        """Return a default as a reader needs it: the number, not the name of the constant."""
        if isinstance(default, ast.Name):
            node = self.find(f"{module}.{default.id}")
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
                return ast.unparse(node.value)
        return ast.unparse(default)


def annotation(node: ast.expr) -> str:
    """Return a type as text, without the quotes of one that is written as a text."""
    return (
        str(node.value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        else ast.unparse(node)
    )
