"""What a claim needs on its node: its config, the plan, the CDI spec, and what is told of it.

What is done with that, and in which order, is in `apps`.
"""
