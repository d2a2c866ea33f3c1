"""Growth curves: a broker's metrics as one quantity grows: queues, connections, producers, groups, backlog, sizes,
log, timers.

`curves` defines the quantities and their measurements, `loads` measures, `plot` draws.
"""
