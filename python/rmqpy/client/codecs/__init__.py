"""Codecs: values of an application as bodies of messages, and back."""
