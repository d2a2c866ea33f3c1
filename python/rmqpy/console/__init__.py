"""The console: a JSON API and pages over the operations of Admin, served by the HTTP port of a server or on its own."""
