"""The steps of a broker's start, which `rmqpy.broker` takes in order.

Each builds its parts of what those before it have built, and hands them on as a named tuple; what has to be undone is
put on the exit stack of the start. No part of the broker knows this room: it is given the two or three things it uses.
"""
