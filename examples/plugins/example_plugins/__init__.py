"""Sample plug-ins of a broker, one of each kind."""
