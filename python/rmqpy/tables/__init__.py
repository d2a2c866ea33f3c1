"""Topics as tables: Arrow streams for Polars, DuckDB, DataFusion and pandas, SQL, and archives."""
