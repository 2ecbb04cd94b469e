"""The GPUs as they are seen, their names, and the ResourceSlices that are published of them."""
