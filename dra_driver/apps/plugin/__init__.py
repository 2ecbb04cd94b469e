"""`dra-driver kubelet-plugin`: the process, its sockets, its start and end."""
