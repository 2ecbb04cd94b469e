"""What events and looks at a GPU mean, for whom, and for how long.

Here belong the table of XIDs, what follows from facts, when a condition begins and ends, and how it
is said as a taint. Who listens to NVML, writes slices or resets a card is in `apps.health` and
`apps.offering`.
"""
