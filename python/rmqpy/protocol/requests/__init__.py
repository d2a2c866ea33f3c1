"""Request families, one module each. Each request is declared once, for both sides."""
