"""A cluster at one moment, and who has what in it: what `status` shows and `explain` starts from.

Why somebody does not have something is `explaining`.
"""
