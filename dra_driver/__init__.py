"""Kubernetes Dynamic Resource Allocation driver for NVIDIA GPUs."""
