"""A table and its file: versions, writing without stopping the loop, members that other releases put there."""
