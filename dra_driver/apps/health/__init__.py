"""Watches the GPUs of a node, remembers what is wrong with them, and resets those that may be.

Who tells others of it is in `apps.telling`; what is published with it, in `apps.offering`.
"""
