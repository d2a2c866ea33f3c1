"""One class for each family of requests. A handler reads the request, queries the tables, and builds the reply."""
