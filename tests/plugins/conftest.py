"""Plug-ins for one test, importable in its process, and numbers of a broker."""

import itertools
import re
import urllib.request
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from plugins.installed import install
from rmqpy.server import Standalone

Install = Callable[..., ModuleType]

_NUMBERS = itertools.count()


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """`plugin(code, probe="Probe")` installs a module with these plug-ins, and returns it."""

    def made(code: str, **plugins: str) -> ModuleType:
        module = f"probes_{next(_NUMBERS)}"
        targets = {name.replace("_", "-"): f"{module}:{kind}" for name, kind in plugins.items()}
        monkeypatch.syspath_prepend(install(tmp_path / module, module, targets, code))
        return import_module(module)

    return made


def metric(server: Standalone, name: str, plugin: str = "probe") -> float | None:
    """A sample of a plug-in; `None` without one."""
    with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    for line in text.splitlines():
        if re.match(rf'rmqpy_plugin_{name}{{.*plugin="{plugin}"', line):
            return float(line.rpartition(" ")[2])
    return None
