"""Message traces: records of producers and consumers, and the thread that sends them."""
