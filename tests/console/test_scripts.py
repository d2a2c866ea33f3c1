"""Scripts of the console's pages, run by Node where the machine has it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rmqpy.console import site

NODE = shutil.which("node")
ASSETS = Path(site.__file__).parent / "assets"

pytestmark = pytest.mark.skipif(NODE is None, reason="no Node on this machine")


def outcome(scenario: str) -> Any:
    assert NODE is not None
    page = Path(__file__).parent / "page.mjs"
    done = subprocess.run(
        [NODE, page, ASSETS, scenario], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_figures_of_a_server_that_is_gone_are_not_shown_as_if_they_were_new() -> None:
    found = outcome("gone")
    assert "answers" in found["before"]
    assert "7" in found["before"]
    assert "answers" not in found["after"]
    assert "Not known: connecting again…" in found["after"]
    assert (found["during"], found["back"]) == (True, False)


def test_a_dialog_ends_with_the_view_it_is_about() -> None:
    assert outcome("dialogs") == {"before": 1, "after": 0, "outcome": None}


def test_a_reset_proposes_a_topic_of_the_group_and_nothing_where_nothing_would_change() -> None:
    assert outcome("reset") == {"proposed": "orders", "buttons": {"5": False, "0": True}}
