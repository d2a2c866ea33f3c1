"""The broker's control plane: what clients and administrators change, and what is derived from it.

Everything here runs on the broker's event loop; files are written in worker threads.
"""
