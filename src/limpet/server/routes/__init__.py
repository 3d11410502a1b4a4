"""The handlers and routes of the HTTP API, one module for each noun."""
