"""Being a member of a consumer group: who else is in it, and which queues are whose."""
