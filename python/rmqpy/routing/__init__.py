"""Parts of a name server: tables, key-value configuration, and request handlers."""
