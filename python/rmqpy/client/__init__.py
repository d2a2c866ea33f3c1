"""The policy of clients: routes, the choice of a queue, retries, offsets. The network below is native.

Everything that asks a server is a coroutine over `remoting.client.Caller`, so that the blocking and the asyncio
classes are two faces of one piece of code.
"""
