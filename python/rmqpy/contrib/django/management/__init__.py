"""Django looks for commands below this package."""
