"""Speaks MCP to agents: over stdio for one, and as an ASGI application beside the HTTP API for many."""
