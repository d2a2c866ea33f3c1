"""Django's tasks: a backend that sends them to RocketMQ, and the command `rocketmq_worker` that runs them."""
