"""A topic as a dataset of pyarrow: engines that scan datasets tell which columns they need.

A subclass of pyarrow's class, because engines test for it. Its base has no data and would crash, so
every method that engines call is here, and the others say that they are missing. Imports pyarrow.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.dataset

if TYPE_CHECKING:
    from rmqpy.tables.topic_read import TopicRead


class TopicDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """The messages of a `TopicRead`. Each scan reads the topic again, in the columns that it needs."""

    def __init__(self, read: "TopicRead") -> None:
        self._read = read
        self._fields = read.schema

    def __reduce__(self) -> Any:
        raise TypeError("a topic's dataset cannot be pickled")

    @property
    def schema(self) -> "pyarrow.Schema":
        """The schema of all columns."""
        return self._fields

    @property
    def partition_expression(self) -> Any:
        """Nothing is known of all rows."""
        return pyarrow.dataset.scalar(True)

    def scanner(
        self,
        columns: Any = None,
        filter: Any = None,  # noqa: A002
        **options: Any,
    ) -> "pyarrow.dataset.Scanner":
        """Return a scanner of some columns, with the rows that a filter keeps."""
        read = self._read
        if columns is not None:
            # A filter names columns in a form that cannot be read: with one, only its result is narrowed.
            names = (
                list(columns) if filter is None or isinstance(columns, list | tuple) else self._fields.names
            )
            needed = [name for name in names if name in self._fields.names]
            if filter is not None:
                needed = [name for name in self._fields.names if name in needed or _may_name(filter, name)]
            read = read.select(*(needed or _cheapest(self._fields.names)))
        batch_options = {name: options[name] for name in ("use_threads", "memory_pool") if name in options}
        return pyarrow.dataset.Scanner.from_batches(
            read.reader(), columns=columns, filter=filter, **batch_options
        )

    def to_batches(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:  # noqa: A002
        """Return an iterator of record batches."""
        return self.scanner(columns, filter, **options).to_batches()

    def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> "pyarrow.Table":  # noqa: A002
        """Return a table."""
        return self.scanner(columns, filter, **options).to_table()

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **options: Any) -> Any:  # noqa: A002
        """Return the first rows as a table."""
        return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: Any = None, **options: Any) -> int:  # noqa: A002
        """Return the number of rows."""
        columns = None if filter is not None else _cheapest(self._fields.names)
        return int(self.scanner(columns, filter, **options).count_rows())

    def get_fragments(self, filter: Any = None) -> "Iterator[TopicFragment]":  # noqa: A002
        """Yield one fragment, the whole topic: DataFusion scans fragments."""
        yield TopicFragment(self)

    def replace_schema(self, schema: Any) -> Any:
        """Raise `NotImplementedError`."""
        raise NotImplementedError("the columns of a topic are those of read_topic")

    def filter(self, expression: Any) -> Any:
        """Raise `NotImplementedError`."""
        raise NotImplementedError("filter the result of scanner(), or give tags to read_topic")

    def take(self, indices: Any, *arguments: Any, **options: Any) -> Any:
        """Raise `NotImplementedError`."""
        raise NotImplementedError("rows of a topic have no index: read_ranges reads offsets")

    sort_by = join = join_asof = take


class TopicFragment:
    """All of a topic, as the only fragment of its dataset."""

    def __init__(self, dataset: TopicDataset) -> None:
        self._dataset = dataset

    def scanner(self, schema: Any = None, **options: Any) -> "pyarrow.dataset.Scanner":
        """Return a scanner, as the dataset does. The schema is that of the dataset."""
        return self._dataset.scanner(**options)


def _may_name(expression: Any, column: str) -> bool:
    """Return whether an expression may use a column: its text has the name of each that it uses."""
    return column in str(expression)


def _cheapest(names: list[str]) -> list[str]:
    """Return a column to count rows by."""
    return ["queueOffset"] if "queueOffset" in names else names[:1]
