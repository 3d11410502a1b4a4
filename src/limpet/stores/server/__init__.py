"""What the engines on a server share: connections of each event loop, asking until there is an answer, wake-ups."""
