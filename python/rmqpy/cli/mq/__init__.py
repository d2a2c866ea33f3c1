"""Apache's commands under their own names: mqnamesrv, mqbroker, mqproxy, mqshutdown, mqadmin.

Existing scripts keep working: names of commands, flags and columns are Apache's; other text is rmqpy's.
"""
