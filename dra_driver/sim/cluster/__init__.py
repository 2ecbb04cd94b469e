"""The embedded cluster's parts: scheduler, kubelet, controllers, container runtime."""
