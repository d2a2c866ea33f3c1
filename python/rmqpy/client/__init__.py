"""Client policy: routes, queue selection, retries and offsets. The network below is native.

Code that asks a server is a coroutine over `remoting.client.Caller`, so that the blocking and asyncio classes share it.
"""
