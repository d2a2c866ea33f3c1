"""A policy: names of topics and groups begin with the name of a team."""

from rmqpy.plugins import Context, GroupRequest, Policy, TopicRequest


class TeamNames(Policy):
    """Options: `teams`, a list of names; `queues_max`, the most queues of a topic."""

    api_version = 1
    # Rather a topic too many than a team that cannot work.
    on_failure = "allow"

    def open(self, context: Context) -> None:
        self._teams = tuple(f"{team}-" for team in context.options.get("teams", ()))
        self._queues_max = int(context.options.get("queues_max", 64))

    def topic(self, request: TopicRequest) -> str | None:
        if request.write_queues > self._queues_max:
            return f"{request.write_queues} queues, and {self._queues_max} are allowed"
        return self._fault(request.name) if request.is_new else None

    def group(self, request: GroupRequest) -> str | None:
        return self._fault(request.name) if request.is_new else None

    def _fault(self, name: str) -> str | None:
        if not self._teams or name.startswith(self._teams):
            return None
        return f"its name must begin with one of {', '.join(self._teams)}"
