"""Typed bodies: JSON, CSV, Avro and Protobuf in messages as columns, and columns as such bodies.

Works on whole Arrow columns. A body that cannot be decoded never fails its neighbours: its row has no value, and the
caller decides what to do with it. Needs `pyarrow`, imported on first use.
"""
