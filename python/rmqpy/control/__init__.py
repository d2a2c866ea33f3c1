"""The broker's control plane: the state that clients and administrators change, and its derivatives.

Its packages, bottom up: `tables`; `topics`, `groups`, `store` and `access`; `clients`, `replicas` and `statistics`;
`handlers`; and `startup`, which builds them all. Everything runs on the broker's event loop; worker threads write
files.
"""
