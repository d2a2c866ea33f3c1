"""Allocation strategies against the official Java classes, over random shapes."""

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import allocations

SHAPES = 10_000


def test_fresh_random_shapes_are_shared_as_java_shares_them(originals: Callable[[str], Path]) -> None:
    build = originals("java-5.5.0")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    classes = f"{build / 'classes'}:{build / 'lib'}/*"
    command = ["java", "-Xmx192m", "-cp", classes, "interop.Allocations", str(seed), str(SHAPES)]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    lines = made.stdout.splitlines()
    assert len(lines) == SHAPES
    assert not [wrong for line in lines if (wrong := allocations.mismatch(line))][:5]
