"""Decides which conditions are alerts, when they fire and resolve, and what is told of them."""
