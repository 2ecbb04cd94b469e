"""What the webhook refuses of claims and templates, and what it advises.

Configs themselves are checked in `preparing`, for the node as well.
"""
