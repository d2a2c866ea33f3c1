"""One module per family of requests; each request is declared once, for the side that asks and the side
that answers."""
