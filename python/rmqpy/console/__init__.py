"""Web console: a JSON API and pages over the operations of Admin, on the HTTP port of a server or standalone."""
