"""How a process can be watched: figures and health over HTTP, logs as lines of JSON."""
