"""The original's commands under their own names: mqnamesrv, mqbroker, mqshutdown, mqadmin.

Scripts that call them go on with ours. What they print to people is ours; what scripts read, names of commands, flags
and columns, is the original's.
"""
