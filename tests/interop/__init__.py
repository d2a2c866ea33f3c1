"""Compatibility with the originals: official clients against rmqpy, rmqpy's client against Apache's servers."""
