"""Cells: the loads of the comparison with other brokers. Each tool runs those that it can express."""

from benchmarks.cells import Cell

PEER_CELLS: tuple[Cell, ...] = (
    Cell("1x1", "1 × 1, 128 B", "produce", ("-c", "1", "-w", "1")),
    Cell("64x1", "64 × 1, 128 B", "produce", ("-c", "64", "-w", "1")),
    Cell("4x64", "4 × 64, 128 B", "produce", ("-c", "4", "-w", "64")),
    Cell("4x64-1k", "4 × 64, 1 KiB", "produce", ("-c", "4", "-w", "64", "-s", "1024")),
    Cell("batch", "4 × 1, batches of 32 × 128 B", "produce", ("-c", "4", "-w", "1", "--batch", "32")),
    Cell(
        "batch-16k", "1 × 5, batches of 16 KB of 128 B", "produce", ("-c", "1", "-w", "5", "--batch", "120")
    ),
    Cell(
        "bulk",
        "1 × 5, batches of 1 MB of 1,000 B",
        "produce",
        ("-c", "1", "-w", "5", "--batch", "1000", "-s", "1000"),
    ),
    Cell("pull-1", "pull, 1 connection", "consume", ("-c", "1", "-w", "1")),
    Cell("pull-16", "pull, 16 connections", "consume", ("-c", "16", "-w", "1")),
)


def named(names: str) -> tuple[Cell, ...]:
    """Select cells by comma-separated names; all for an empty list. Raises `KeyError` for an unknown name."""
    by_name = {cell.name: cell for cell in PEER_CELLS}
    return tuple(by_name[name.strip()] for name in names.split(",")) if names else PEER_CELLS
