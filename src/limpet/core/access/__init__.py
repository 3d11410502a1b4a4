"""Who may do what over the network: roles, tokens, and the refusals of both."""
