"""The broker's control plane: what clients and administrators change, and what is derived from it.

Its rooms, from the ground up: `tables`, then `topics`, `groups` and `store`, then `clients`, `statistics`, and
`handlers` on top. Everything here runs on the broker's event loop; files are written in worker threads.
"""
