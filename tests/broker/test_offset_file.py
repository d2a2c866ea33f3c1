"""consumerOffset.json: Apache's file, cut to what survived, written only when something changed."""

import json
from pathlib import Path

import pytest

from broker.fakes import OffsetTable
from rmqpy.clock import HandClock
from rmqpy.config import files
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.errors import ConfigError, StoreError

FASTJSON_1 = (
    '{"dataVersion":{"counter":11,"stateVersion":0,"timestamp":1758000000000},'
    '"groupTopicMap":{"billing":["orders"]},"offsetTable":{"orders@billing":{0:250,1:243}}}'
)
FASTJSON_2 = """{
	"dataVersion":{
		"counter":11
	},
	"offsetTable":{
		"orders@billing":{
			0:250,
			1:243
		}
	},
	"pullOffsetTable":{
		"orders@billing":{
			0:251
		}
	}
}"""
QUOTED = '{"offsetTable":{"orders@billing":{"0":250,"1":243}}}'


def loaded(path: Path, end: int = 1_000) -> OffsetTable:
    table = OffsetTable()
    OffsetFile(path, table, HandClock()).load(lambda topic, queue_id: True, lambda topic, queue_id: end)
    return table


@pytest.mark.parametrize("text", [FASTJSON_1, FASTJSON_2, QUOTED])
def test_integer_keys_are_read_bare_and_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text(text)
    assert loaded(path).table == {"orders@billing": {0: 250, 1: 243}}


def test_offsets_beyond_the_end_of_a_queue_are_cut_back_on_disk_too(tmp_path: Path) -> None:
    """After a power loss the queue may be shorter, and new messages would take the skipped positions."""
    path = tmp_path / "consumerOffset.json"
    path.write_text(QUOTED)
    assert loaded(path, end=245).table == {"orders@billing": {0: 245, 1: 243}}
    assert loaded(path).table == {"orders@billing": {0: 245, 1: 243}}


def test_positions_of_broadcast_clients_are_cut_by_their_topic(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders@billing@client":{"0":9}}}')
    asked: list[tuple[str, int]] = []

    def end_of(topic: str, queue_id: int) -> int:
        asked.append((topic, queue_id))
        return 7

    OffsetFile(path, OffsetTable(), HandClock()).load(lambda topic, queue_id: True, end_of)
    assert asked == [("orders", 0)]


async def test_the_file_is_written_when_something_was_committed_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    table = OffsetTable()
    file = OffsetFile(path, table, HandClock())
    await file.save()
    assert not path.exists()
    table.commit("orders@billing", 0, 5)
    await file.save()
    assert json.loads(path.read_text())["offsetTable"] == {"orders@billing": {"0": 5}}
    path.unlink()
    await file.save()
    assert not path.exists()


async def test_a_failed_write_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "consumerOffset.json"
    table = OffsetTable()
    file = OffsetFile(path, table, HandClock())
    table.commit("orders@billing", 0, 5)

    def failing(path: Path, text: str, **options: bool) -> None:
        raise OSError("disk on fire")

    with monkeypatch.context() as patched:
        patched.setattr(files, "save", failing)
        with pytest.raises(StoreError, match="disk on fire"):
            await file.save()
    await file.save()
    assert path.exists()


def test_a_damaged_file_without_a_backup_is_named(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders@billing":{0:')
    with pytest.raises(ConfigError, match=r"consumerOffset\.json"):
        loaded(path)
