"""Imports between the files of a Rust crate: pairs of a file that uses a name and the file that defines it.

Read as text: `use` trees, and paths in code that begin with `crate`, `super`, `self` or a submodule. A name that a
module re-exports (`pub use`) is followed to the file that defines it, so that a façade does not depend on names it does
not
define. Test modules do not count.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Module = tuple[str, ...]

_NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\.|[^'\\])'|r(#*)\".*?\"\1", re.DOTALL
)
_TEST_MODULE = re.compile(
    r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\s+)?mod\s+\w+\s*(;|\{)"
)
#: A visibility names a module without taking anything from it.
_VISIBILITY = re.compile(r"\bpub\s*\(in [\w:]+\)")
_USE = re.compile(r"(?P<public>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")
_DECLARED = re.compile(r"\bmod\s+(\w+)\s*;")
_INLINE = re.compile(r"\bmod\s+\w+\s*\{")
_PATH = re.compile(r"(?<![\w:])(?:[a-z_]\w*::)+\w+")


def without_comments(code: str) -> str:
    """The code with comments and literals blanked."""
    return _NOT_CODE.sub(" ", code)


def _end_of_block(code: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(code)):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        if depth == 0:
            return at + 1
    return len(code)


def product_code(code: str) -> str:
    """The code without comments, literals and test modules."""
    code = without_comments(code)
    while match := _TEST_MODULE.search(code):
        end = match.end() if match[1] == ";" else _end_of_block(code, match.end() - 1)
        code = code[: match.start()] + " " + code[end:]
    return code


def leaves(tree: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Paths of a use tree, each with the name it is known by: `a::{b, c as d}` gives a::b as b and a::c as d."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, name = (part.strip() for part in tree.partition(" as "))
        parts = tuple(part.strip() for part in path.split("::"))
        if parts[-1] == "self":
            parts = parts[:-1]
        yield parts, name or "".join(parts[-1:])
        return
    prefix = tuple(part.strip() for part in tree[:brace].split("::") if part.strip())
    depth, start = 0, brace + 1
    for at in range(brace, len(tree)):
        if tree[at] == "{":
            depth += 1
        elif tree[at] == "}":
            depth -= 1
        if (tree[at] == "," and depth == 1) or (tree[at] == "}" and depth == 0):
            if tree[start:at].strip():
                for parts, name in leaves(tree[start:at]):
                    yield prefix + parts, name or prefix[-1]
            start = at + 1


@dataclass
class _File:
    module: Module
    #: The imported paths, made absolute if they begin with `super`, `self` or a submodule.
    uses: set[Module] = field(default_factory=set)
    #: Name → the path it is handed on from.
    handed_on: dict[str, Module] = field(default_factory=dict)


def _absolute(path: Sequence[str], module: Module, submodules: set[str]) -> Module | None:
    if path[0] == "crate":
        return tuple(path[1:])
    if path[0] == "self":
        return (*module, *path[1:])
    if path[0] == "super":
        up = 0
        while up < len(path) and path[up] == "super":
            up += 1
        return (*module[: len(module) - up], *path[up:])
    return (*module, *path) if path[0] in submodules else None


def _read(code: str, module: Module) -> _File:
    code = _VISIBILITY.sub("pub", product_code(code))
    submodules = set(_DECLARED.findall(code))
    file = _File(module)
    for use in _USE.finditer(code):
        for path, name in leaves(use["tree"]):
            absolute = _absolute(path, module, submodules)
            if absolute is None:
                continue
            if use["public"]:
                file.handed_on[name] = absolute
            else:
                file.uses.add(absolute)
    body = _USE.sub(" ", code)
    # A module written inside this file has this file as its `super`.
    for inline in _INLINE.finditer(body):
        end = _end_of_block(body, inline.end() - 1)
        block = re.sub(r"(?<![\w:])super::(?!super)", "self::", body[inline.start() : end])
        body = body[: inline.start()] + block.ljust(end - inline.start()) + body[end:]
    for written in _PATH.finditer(body):
        absolute = _absolute(written.group().split("::"), module, submodules)
        if absolute is not None:
            file.uses.add(absolute)
    return file


def _definition(path: Module, files: Mapping[Module, _File]) -> Module | None:
    """Return the module whose file defines `path`; `None` outside the crate."""
    for _ in range(16):
        module = path
        while module and module not in files:
            module = module[:-1]
        if not module:
            return None
        rest = path[len(module) :]
        if not rest or rest[0] not in files[module].handed_on:
            return module
        path = (*files[module].handed_on[rest[0]], *rest[1:])
    return None


def imports(sources: Mapping[Module, str]) -> dict[Module, set[Module]]:
    """Return for each module with a file the modules whose definitions it uses."""
    files = {module: _read(code, module) for module, code in sources.items()}
    taken: dict[Module, set[Module]] = {}
    for module, file in files.items():
        targets = {_definition(path, files) for path in file.uses}
        taken[module] = {target for target in targets if target is not None and target != module}
    return taken


def module_of(path: Path, root: Path) -> Module:
    """Return the module of the file `path`, in the crate at `root`."""
    parts = path.relative_to(root).with_suffix("").parts
    return parts[:-1] if parts[-1] == "mod" else parts


def sources_below(root: Path) -> dict[Module, str]:
    """The source of each module of the crate at `root`, but for its root file and files of tests."""
    found = {}
    for path in sorted(root.rglob("*.rs")):
        module = module_of(path, root)
        if module != ("lib",) and "tests" not in module:
            found[module] = path.read_text(encoding="utf-8")
    return found


def circles(graph: Mapping[Module, set[Module]]) -> list[list[Module]]:
    """Groups of modules that import each other, in one step or several: Tarjan's strongly connected components."""
    index: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []
    found: list[list[Module]] = []

    def visit(node: Module) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = []
            while True:
                group.append(stack.pop())
                if group[-1] == node:
                    break
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return found
