"""Growth: a broker's figures as one thing grows: queues, connections, producers, groups, backlog, sizes, log, timers.

`curves` has what grows and how it is measured, `loads` the measurements, `plot` the drawing.
"""
