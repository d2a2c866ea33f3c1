"""Load generation for brokers, rmqpy's and Apache's: the parts of `rmqpy bench`.

The load itself is native (`rmqpy._native.Load`). This package does what happens once per run: it finds the queues
(`targets`), describes the machine and finds the broker's process on it (`machine`), and presents the results (`report`,
`plot`).
"""
