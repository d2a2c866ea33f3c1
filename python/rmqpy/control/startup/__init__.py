"""The steps of a broker's start, in the order of `rmqpy.broker`.

Each step builds its parts from earlier ones and returns them as a named tuple, and pushes its clean-up to the exit
stack of the start. Parts of the broker do not import this package: they receive the few objects they use.
"""
