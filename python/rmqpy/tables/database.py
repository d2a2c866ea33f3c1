"""SQL over topics: a DuckDB database in memory, in which each topic that a query names is a table.

DuckDB scans topics through `TopicDataset`, so only the columns of a query are decoded. Its memory is bounded by
`memory_limit`, beyond which it writes to a temporary folder.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import need, pyarrow
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import duckdb

    from rmqpy.tables.topic_read import TopicRead

#: Characters of topics.
_TOPIC: Final = re.compile(r"[%|\w-]+", re.ASCII)


class Topics:
    """Topics as tables of DuckDB. `read` returns a topic by its name."""

    def __init__(
        self,
        read: "Callable[[str], TopicRead]",
        *,
        memory_limit: str | None = None,
        temporary: str | None = None,
    ) -> None:
        self._duckdb = need("duckdb", "sql", "SQL over topics")
        pyarrow("SQL over topics")
        settings: dict[str, Any] = {}
        if memory_limit is not None:
            settings["memory_limit"] = memory_limit
        if temporary is not None:
            settings["temp_directory"] = temporary
        try:
            self._connection: Any = self._duckdb.connect(":memory:", config=settings)
        except self._duckdb.Error as error:
            raise ConfigError(f"DuckDB refuses the settings: {_reason(error)}") from None
        # A name is a topic, never a variable of the caller.
        self._connection.execute("set python_enable_replacements = false")
        self._read = read
        #: The topics read so far by name.
        self.reads: dict[str, TopicRead] = {}

    def add(self, read: "TopicRead") -> None:
        """Make a topic a table. Replaces one of the same name."""
        self._connection.register(read.topic, read.dataset())
        self.reads[read.topic] = read

    def query(self, text: str) -> "duckdb.DuckDBPyRelation | None":
        """Return the result of a query, or `None` for a statement without one. Raises `TopicNotFound` for a table
        that is neither a topic nor DuckDB's, and `ConfigError` for a query that DuckDB refuses."""
        self._add_topics(text)
        try:
            return self._connection.sql(text)
        except self._duckdb.Error as error:
            raise ConfigError(f"DuckDB refuses the query: {_reason(error)}") from None

    def pages(self, text: str, rows: int) -> Iterator[Sequence[Any]]:
        """Run a query, and yield the names of its columns, then its rows in pages. Raises as `query`, also for an error
        while the topics are read."""
        self._add_topics(text)
        try:
            self._connection.execute(text)
            yield tuple(column[0] for column in self._connection.description)
            while page := self._connection.fetchmany(rows):
                yield page
        except self._duckdb.Error as error:
            for read in self.reads.values():
                if read.failures:
                    raise read.failures[0] from None
            raise ConfigError(f"DuckDB ended the query: {_reason(error)}") from None

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _add_topics(self, text: str) -> None:
        """Make each topic that a query names a table."""
        try:
            named = self._connection.get_table_names(text)
        except self._duckdb.Error as error:
            raise ConfigError(f"DuckDB refuses the query: {_reason(error)}") from None
        for name in sorted(named):
            # DuckDB reads files by name, such as 'orders.parquet'.
            if _TOPIC.fullmatch(name) and name not in self.reads and not self._is_known(name):
                self.add(self._read(name))

    def _is_known(self, name: str) -> bool:
        try:
            self._connection.table(name)
        except self._duckdb.Error:
            return False
        return True


def _reason(error: Exception) -> str:
    """Return the reason, and the part of the query that it points to."""
    return "\n".join(line for line in str(error).splitlines() if line.strip())
