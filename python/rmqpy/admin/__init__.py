"""Administration of a cluster: one module per noun, each request to as many servers as it concerns."""
