"""GPUs for virtual machines: which can be passed through, what goes along, by which kernel module.

What a VFIO device looks like in a slice is in `offering`; what is done is in `apps.effects`.
"""
