"""What a node offers: names, attributes, MIG places and their order, shares, and their slices.

What is done with a device once a claim has it is `preparing`.
"""
