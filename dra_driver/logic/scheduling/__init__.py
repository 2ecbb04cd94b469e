"""What the scheduler does with claims: which devices they get, where, and what is in the way.

How that is told to people is `explaining`; what a node has to offer is `offering`.
"""
