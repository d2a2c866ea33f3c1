"""Consumption message by message: a broker delivers messages, hides each for a time, and takes acknowledgements."""
