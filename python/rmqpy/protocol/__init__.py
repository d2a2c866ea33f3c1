"""What travels between RocketMQ peers, without any I/O: codes, declarations of requests, and fastjson's
dialect."""
