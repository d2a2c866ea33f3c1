"""Archives: topics in Parquet, Delta and Iceberg tables, each message exactly once.

Files and the position of the topic are committed together, so a run that was killed is repeated from its last
commit, and leaves nothing of its unfinished one.
"""
