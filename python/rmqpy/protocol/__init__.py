"""Remoting protocol without I/O: codes, declarations of requests, and fastjson's dialect."""
