"""Administration of a cluster: one module per noun. Requests go to every server concerned."""
