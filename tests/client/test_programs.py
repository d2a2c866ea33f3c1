"""The example programs: they run unchanged and do what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

#: Program → a line that only its success prints.
PROGRAMS = {
    "peak_shaving.py": "stored all 600",
    "decoupling.py": "billing has seen every order",
    "log_collection.py": "collected {'INFO': 100, 'ERROR': 1}, dropped 0",
    "ordered_by_key.py": "booked 480 movements, every balance is {0}",
    "cache_invalidation.py": "every server has forgotten the old price",
    "retries.py": "dead letter: invoice 2",
    "reminders.py": "wrote 6 letters in a week",
    "filters.py": "insured: camera, 400 EUR",
    "transactions.py": "billed: A-1: 30 EUR, A-3: 12 EUR, A-4: 8 EUR",
    "batches.py": "1010 were archived",
    "operation.py": "5 wait again in 2 queues",
    "request_reply.py": "durians: no reply to the request to prices within 0.5 s",
    "namespaces.py": "the operator sees ['north%orders', 'south%orders']",
}
#: Needs Spark: `make demo` runs it.
ELSEWHERE = {"first_message.py"}


def test_every_program_is_listed() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == PROGRAMS.keys() | ELSEWHERE


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_runs_unchanged(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert PROGRAMS[name] in ran.stdout
    assert "Traceback" not in ran.stderr
    assert "Warning" not in ran.stderr
