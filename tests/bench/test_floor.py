"""The floor of the comparison: it accepts all forms of sends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.cells import named
from benchmarks.measure import TOPIC, bench
from benchmarks.servers import Floor

# The program is built first.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    folder: Path = tmp_path_factory.mktemp("floor")
    side = Floor(folder, "dev")
    try:
        side.start()
        yield side
    finally:
        side.stop()


@pytest.mark.parametrize(
    "options", [(), ("--header", "binary"), ("--batch", "8"), ("-s", "1024"), named("bulk")[0].options]
)
def test_the_floor_answers_every_send_of_a_load(floor: Floor, options: tuple[str, ...]) -> None:
    count = ("-c", "2", "-w", "16", "--count", "2000", "-d", "20", "--warm-up", "0")
    result = bench(floor, "produce", *count, *options)
    assert result["messages"] >= 2000
    assert (result["refused"], result["unanswered"]) == ([], 0)
    assert TOPIC == "bench", "the topic that it knows"
