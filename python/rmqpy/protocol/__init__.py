"""The remoting protocol without any I/O: codes, declarations of requests, and fastjson's dialect."""
