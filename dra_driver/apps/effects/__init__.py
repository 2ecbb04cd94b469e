"""What is done to devices for a claim, and undone: instances, settings, daemons, the CDI spec.

The order, and what is remembered of it, is `preparing`.
"""
