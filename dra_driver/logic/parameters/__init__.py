"""Parameter objects of DRA's first API (`gpu.resource.nvidia.com/v1alpha1`) -> claims of today.

Not here: the objects themselves (`model/parameters`), pods that use them (`logic/converting`).
"""
