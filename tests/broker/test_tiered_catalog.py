"""The catalog of a tiered storage finds the messages of a queue, whatever files and topics there are."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from rmqpy.config.tiered import TieredConfig
from rmqpy.control.tiered.catalog import Catalog
from rmqpy.control.tiered.claim import Claim
from rmqpy.control.tiered.described import Run, TieredFile, decode, encode
from rmqpy.control.tiered.objects import Objects

FILE_BYTES = 1_000
#: Messages of each queue in each file of the log; a queue exists from its first entry on.
HISTORIES = st.lists(st.dictionaries(st.sampled_from([0, 1, 2]), st.integers(0, 5)), min_size=1, max_size=8)


def file(number: int) -> TieredFile:
    return TieredFile(number * FILE_BYTES, FILE_BYTES, "0" * 64, 0, number * 100, (number + 1) * 100)


def loaded(folder: Path) -> Catalog:
    objects = Objects(TieredConfig(storage=str(folder / "tier")), "c/b")
    catalog = Catalog(objects, Claim(objects, folder))
    catalog.load(may_write=True)
    return catalog


def catalog_of(
    folder: Path, history: list[dict[int, int]], kept: set[int]
) -> tuple[Catalog, dict[int, dict[int, int]]]:
    """A catalog with some files of a log; and for each queue, the file of each of its offsets."""
    catalog = loaded(folder)
    places: dict[int, dict[int, int]] = {}
    ends: dict[int, int] = {}
    for number, messages in enumerate(history):
        runs = {}
        for queue in (0, 1, 2):
            if queue not in ends and queue not in messages:
                continue
            begin = ends.get(queue, 0)
            ends[queue] = begin + messages.get(queue, 0)
            runs[queue] = Run(begin, ends[queue], 0)
            if number in kept:
                places.setdefault(queue, {}).update(dict.fromkeys(range(begin, ends[queue]), number))
        if number in kept:
            catalog.add(file(number), {"orders": runs})
    return catalog, places


@given(HISTORIES, st.sets(st.integers(0, 7)), st.booleans())
def test_the_first_file_with_a_message_at_an_offset_or_later_is_found(
    history: list[dict[int, int]], kept: set[int], is_loaded: bool
) -> None:
    with TemporaryDirectory() as folder:
        catalog, places = catalog_of(Path(folder), history, kept)
        if is_loaded:
            catalog = loaded(Path(folder))
        for queue in (0, 1, 2):
            known = places.get(queue, {})
            assert catalog.min_offset("orders", queue) == min(known, default=None)
            for offset in range(-1, 45):
                later = [each for each in known if each >= offset]
                found = catalog.find("orders", queue, offset)
                assert (found and found[0].begin // FILE_BYTES) == (known[min(later)] if later else None)
                assert found is None or found[1].begin < found[1].end


@given(HISTORIES, st.integers(0, 8))
def test_messages_of_a_deleted_topic_are_not_found(history: list[dict[int, int]], deleted_in: int) -> None:
    with TemporaryDirectory() as folder:
        catalog, places = catalog_of(Path(folder), history, set(range(8)))
        catalog.forget(["orders"], deleted_in * FILE_BYTES)
        for queue in (0, 1, 2):
            left = [offset for offset, number in places.get(queue, {}).items() if number >= deleted_in]
            assert catalog.min_offset("orders", queue) == min(left, default=None)


def test_a_description_reads_back() -> None:
    runs = {"orders": {0: Run(0, 5, 0), 3: Run(7, 7, 100)}, "größe": {1: Run(1, 2, 100)}}
    assert decode(encode(file(3), runs)) == (file(3), runs)
