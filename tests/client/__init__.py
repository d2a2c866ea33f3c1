"""The client against servers that do exactly what a test says, and against real ones."""
