"""One module per family of requests. Each is declared once, for those who ask and those who answer."""
