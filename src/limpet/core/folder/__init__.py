"""A queue as agents keep it: a folder of JSON files."""
