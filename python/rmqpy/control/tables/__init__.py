"""A table and its file: versions, writes that do not block the loop, unknown fields of other releases."""
