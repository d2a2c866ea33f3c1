"""Measuring brokers, ours and Apache's: what `rmqpy bench` is made of.

The load itself is native (`rmqpy._native.Load`). Here is what happens once per run: where the queues are
(`targets`), what the machine is and who listens on it (`machine`), and what the figures look like to people
(`report`, `plot`).
"""
