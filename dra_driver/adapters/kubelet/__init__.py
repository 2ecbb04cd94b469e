"""The kubelet's end: registration, the DRA service and device health, over unix sockets."""
