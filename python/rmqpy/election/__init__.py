"""Parts of a controller: requests of brokers and tools, notifications, settings, metrics. `rmqpy.controller` connects
them; the decisions are native."""
