"""The official Python client of 5.x: runs one scenario in a process, and returns what it observed."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SCENARIOS = Path(__file__).with_name("grpc_scenarios.py")

needs_client = pytest.mark.skipif(
    find_spec("rocketmq") is None, reason="rocketmq-python-client is not installed: pip install --group dev"
)


def observe(folder: Path, scenario: str, *arguments: str) -> Any:
    """Run a scenario, and return its observations."""
    return json.loads(run(folder, str(SCENARIOS), scenario, *arguments).splitlines()[-1])


def run(folder: Path, *arguments: str) -> str:
    """Run Python with these arguments, and return its output; the client's log goes to `folder`."""
    environment = os.environ | {"HOME": str(folder)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
