"""MCP server: the administration library as tools of an assistant, over the Model Context Protocol."""
