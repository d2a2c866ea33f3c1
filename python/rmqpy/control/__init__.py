"""The broker's control plane: what clients and administrators change, and what is derived from it.

Its rooms, from the ground up: `tables`, then `topics`, `groups`, `store` and `access`, then `clients`, `replicas` and
`statistics`, then `handlers`, and on top `startup`, which builds them all. Everything here runs on the broker's event
loop; files are written in worker threads.
"""
