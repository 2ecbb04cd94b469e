"""Mutating admission webhooks: which of them an object concerns, and what they make of it."""
