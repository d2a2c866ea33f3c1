"""One class per family of requests. A handler reads the request, asks the tables, and builds the answer."""
