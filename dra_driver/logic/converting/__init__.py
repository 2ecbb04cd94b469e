"""What manifests of older systems ask for -> claims of today.

Pure: from a pod template and what is known of the fleet, to claim templates and the pod that uses
them. Not here: reading and writing of files (`apps/converting`), answers of the webhook
(`logic/admission`), parameter objects of DRA's first API (`logic/parameters`).
"""
