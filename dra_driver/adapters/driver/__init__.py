"""The files of NVIDIA's driver on the node: where they are, what they are, which programs run."""
