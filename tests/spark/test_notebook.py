"""The notebook of the examples: its cells run from first to last, and it has no outputs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

NOTEBOOK = Path(__file__).parents[2] / "examples" / "spark" / "orders.ipynb"


def cells() -> list[dict[str, Any]]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert found["nbformat"] == 4
    return [cell for cell in found["cells"] if cell["cell_type"] == "code"]


def test_it_has_no_outputs() -> None:
    assert [cell["id"] for cell in cells() if cell["outputs"] or cell["execution_count"] is not None] == []


def test_its_cells_run(
    spark: "SparkSession", server: Standalone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("duckdb")
    # Polars sets it when it is imported.
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "")
    pytest.importorskip("polars")
    monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    defined: dict[str, Any] = {}
    for cell in cells():
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, {cell['id']}", "exec"), defined)
    german = sum(at % 50 for at in range(300) if at % 3)
    expected = [("DE", german), ("FR", sum(at % 50 for at in range(300)) - german)]
    assert [(row.country, row.euro) for row in defined["by_country"].orderBy("country").collect()] == expected
    assert defined["totals"] == expected
    assert defined["behind"] == 0
    # The watermark is a minute behind the last order, at 4:59: three minutes are final.
    assert defined["minutes"].count() == 6
    assert defined["frame"].height == 300
    assert defined["archived"].messages == 300
    assert defined["files"].collect().height == 300
