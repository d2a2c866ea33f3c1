"""The start as a slave: follow the master's log, and copy what it has beside the log."""

from __future__ import annotations

from rmqpy.control.replicas.follower import Follower
from rmqpy.control.replicas.offset_copy import OffsetCopy
from rmqpy.control.replicas.progress_copy import ProgressCopy
from rmqpy.control.replicas.promise_copy import PromiseCopy
from rmqpy.control.replicas.table_copy import GroupCopy, TopicCopy
from rmqpy.control.startup.context import StartContext
from rmqpy.control.startup.recovery import Recovered
from rmqpy.control.startup.replicas import Replicas
from rmqpy.control.startup.services import Services
from rmqpy.remoting.endpoint import Endpoint


async def start_as_slave(
    context: StartContext, recovered: Recovered, services: Services, replicas: Replicas, endpoint: Endpoint
) -> None:
    """Follow, and begin to take requests. Raises `StoreError`."""
    undo, role = context.undo, recovered.role
    await context.leadership.follow()
    alignment = replicas.stream.follow(context.config.name, context.master, context.peer, context.restart)
    undo.push_async_callback(alignment.stop)
    endpoint.start()
    # Topics and groups are copied as they change, and need not be asked for in the end.
    progress_copies = (
        OffsetCopy(recovered.offsets, recovered.durable_end),
        ProgressCopy(recovered.delay_file, recovered.timer_file, recovered.durable_end, replicas.lag),
    )
    copies = (
        TopicCopy(recovered.topics, services.deletion.delete),
        GroupCopy(recovered.groups),
        PromiseCopy(context.leadership),
        *progress_copies,
    )
    follower = Follower(context.master, context.peer, copies, role.master_answers)
    undo.push_async_callback(follower.stop)
    role.on_return = services.server.wake_pulls
    replicas.succession.finish_copies = lambda: follower.finish(progress_copies)
    follower.start()
    if replicas.acting is not None:
        undo.push_async_callback(replicas.acting.stop)
