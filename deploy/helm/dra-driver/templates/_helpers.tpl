{{- define "dra-driver.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "dra-driver.fullname" -}}
{{- $name := include "dra-driver.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "dra-driver.plugin" -}}
{{ include "dra-driver.fullname" . }}-kubelet-plugin
{{- end }}

{{- define "dra-driver.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "dra-driver.plugin" .) .Values.serviceAccount.name }}
{{- else -}}
{{ required "serviceAccount.name: which one, if serviceAccount.create is false?" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "dra-driver.mpsPriorityClass" -}}
{{ default (printf "%s-mps-daemon" (include "dra-driver.fullname" .)) .Values.settings.mpsPriorityClass }}
{{- end }}

{{- define "dra-driver.mpsServiceAccount" -}}
{{ default (printf "%s-mps-daemon" (include "dra-driver.fullname" .)) .Values.settings.mpsServiceAccount }}
{{- end }}

{{- define "dra-driver.selector" -}}
app.kubernetes.io/name: {{ include "dra-driver.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: kubelet-plugin
{{- end }}

{{- define "dra-driver.labels" -}}
{{ include "dra-driver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "dra-driver.webhookSelector" -}}
app.kubernetes.io/name: {{ include "dra-driver.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: webhook
{{- end }}

{{- define "dra-driver.webhookLabels" -}}
{{ include "dra-driver.webhookSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "dra-driver.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- define "dra-driver.resourceApiVersion" -}}
{{- if .Values.resourceApiVersion -}}
{{ .Values.resourceApiVersion }}
{{- else if .Capabilities.APIVersions.Has "resource.k8s.io/v1" -}}
v1
{{- else if .Capabilities.APIVersions.Has "resource.k8s.io/v1beta2" -}}
v1beta2
{{- else if .Capabilities.APIVersions.Has "resource.k8s.io/v1beta1" -}}
v1beta1
{{- else -}}
{{ fail "the cluster serves no resource.k8s.io that is known (v1, v1beta2, v1beta1): Kubernetes 1.34 does, 1.32 and 1.33 need --runtime-config=resource.k8s.io/v1beta1=true and the feature gate of dynamic resource allocation. To render without a cluster, set resourceApiVersion" }}
{{- end }}
{{- end }}

{{- /* Directory of the plugin, on the host and in its container alike: the kubelet is told paths in it. */}}
{{- define "dra-driver.pluginDir" -}}
{{ .Values.settings.kubeletRoot }}/plugins/{{ .Values.settings.driverName }}
{{- end }}

{{- /* `true` or nothing: kubelets know two instances of a driver from 1.33 on. They may be older than
the API server; without a cluster to ask, as for `helm template`, only its version is known. */}}
{{- define "dra-driver.surges" -}}
{{- $surge := toString .Values.kubeletPlugin.surge }}
{{- if eq $surge "auto" }}
{{- $new := semverCompare ">=1.33.0-0" .Capabilities.KubeVersion.Version }}
{{- range (lookup "v1" "Node" "" "").items }}
{{- $version := dig "status" "nodeInfo" "kubeletVersion" "" . }}
{{- $new = and $new (or (not $version) (semverCompare ">=1.33.0-0" $version)) }}
{{- end }}
{{- $surge = toString $new }}
{{- end }}
{{- if eq $surge "true" }}true{{ end }}
{{- end }}

{{- /* `true` or nothing: whether the plugin's pod is for nodes with these `labels`, by `plugin`, the
values that say so. Operators that are not known are taken to match. */}}
{{- define "dra-driver.isForNode" -}}
{{- $labels := .labels }}
{{- $fits := true }}
{{- range $key, $value := .plugin.nodeSelector }}
{{- $fits = and $fits (eq (get $labels $key) $value) }}
{{- end }}
{{- with dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list (default dict .plugin.affinity) }}
{{- $some := false }}
{{- range . }}
{{- $all := true }}
{{- range .matchExpressions }}
{{- $is := and (hasKey $labels .key) (has (get $labels .key) (default list .values)) }}
{{- $match := dict "In" $is "NotIn" (not $is) "Exists" (hasKey $labels .key) "DoesNotExist" (not (hasKey $labels .key)) }}
{{- $all = and $all (dig .operator true $match) }}
{{- end }}
{{- $some = or $some $all }}
{{- end }}
{{- $fits = and $fits $some }}
{{- end }}
{{- if $fits }}true{{ end }}
{{- end }}

{{- /* JSON: the ports that API servers listen at, and that of their Service, since some networks look at
connections before and some after its address is translated. Empty: not known. */}}
{{- define "dra-driver.apiServerPorts" -}}
{{- $ports := list }}
{{- range .Values.networkPolicy.apiServerPorts }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- if not $ports }}
{{- if .Capabilities.APIVersions.Has "discovery.k8s.io/v1/EndpointSlice" }}
{{- range dig "ports" list (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "kubernetes") }}
{{- $ports = append $ports (int .port) }}
{{- end }}
{{- end }}
{{- if $ports }}
{{- $ports = append $ports 443 }}
{{- end }}
{{- end }}
{{- $ports | uniq | toJson }}
{{- end }}

{{- define "dra-driver.settings" -}}
{{- $own := dict "driverRootSeen" "/driver-root" }}
{{- if .Values.metrics.enabled }}
{{- $_ := set $own "metricsAddress" (printf ":%d" (int .Values.metrics.port)) }}
{{- end }}
{{- if and .Values.kubeletPlugin.cdiHook (not .Values.settings.cdiHook) }}
{{- $_ := set $own "cdiHook" (printf "%s/nvidia-cdi-hook" (include "dra-driver.pluginDir" .)) }}
{{- end }}
{{- if not .Values.settings.mpsImage }}
{{- $_ := set $own "mpsImage" (include "dra-driver.image" .) }}
{{- end }}
{{- if eq .Values.settings.mpsLauncher "pod" }}
{{- $_ := set $own "mpsServiceAccount" (include "dra-driver.mpsServiceAccount" .) }}
{{- $_ := set $own "mpsPriorityClass" (include "dra-driver.mpsPriorityClass" .) }}
{{- if not .Values.settings.mpsImagePullPolicy }}
{{- $_ := set $own "mpsImagePullPolicy" .Values.image.pullPolicy }}
{{- end }}
{{- if not .Values.settings.mpsImagePullSecrets }}
{{- $names := list }}
{{- range .Values.imagePullSecrets }}
{{- $names = append $names .name }}
{{- end }}
{{- $_ := set $own "mpsImagePullSecrets" $names }}
{{- end }}
{{- end }}
{{- if include "dra-driver.passes" . }}
{{- $_ := set $own "hostRoot" "/host" }}
{{- end }}
{{- /* YAML 1.1 reads an `off` without quotes as false, and an `on` as true. */}}
{{- $given := deepCopy .Values.settings }}
{{- range $part := prepend (default list $given.gpus) $given }}
{{- range $name := list "migMode" "shares" "recovery" "vfio" }}
{{- if eq (get $part $name | toString) "false" }}
{{- $_ := set $part $name "off" }}
{{- end }}
{{- end }}
{{- if eq (get $part "vfio" | toString) "true" }}
{{- $_ := set $part "vfio" "on" }}
{{- end }}
{{- end }}
{{- merge $own $given | toJson }}
{{- end }}

{{- /* `true` or nothing: whether some GPU may be handed to virtual machines. */}}
{{- define "dra-driver.passes" -}}
{{- $passes := false }}
{{- range prepend (default list .Values.settings.gpus) .Values.settings }}
{{- $passes = or $passes (not (has (get . "vfio" | toString) (list "" "off" "false"))) }}
{{- end }}
{{- if $passes }}true{{ end }}
{{- end }}

{{- define "dra-driver.text" -}}
{{- if kindIs "slice" . }}
{{- if . }}{{ if kindIs "string" (first .) }}{{ join "," . }}{{ else }}{{ toJson . }}{{ end }}{{ end }}
{{- else }}
{{- . | toString }}
{{- end }}
{{- end }}

{{- define "dra-driver.flags" -}}
{{- include "dra-driver.flagsOf" (include "dra-driver.settings" . | fromJson) }}
{{- end }}

{{- /* A flag for each setting of a dict; those that are empty are left out. */}}
{{- define "dra-driver.flagsOf" -}}
{{- range $name, $value := . }}
{{- $text := include "dra-driver.text" $value }}
{{- if $text }}
- {{ printf "--%s=%s" (kebabcase $name) $text | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the probe needs to find the sockets. */}}
{{- define "dra-driver.probe" -}}
- dra-driver
- probe
- --driver-name={{ .Values.settings.driverName }}
- --kubelet-root={{ .Values.settings.kubeletRoot }}
{{- end }}

{{/* Names of the classes of the chart that have a config, in quotes, separated by commas. */}}
{{- define "dra-driver.presets" -}}
{{- $presets := .Values.deviceClasses.presets }}
{{- $names := list }}
{{- if and .Values.deviceClasses.create $presets.timeSliceInterval }}
{{- $names = append $names (printf "time-sliced.%s" .Values.settings.driverName | quote) }}
{{- end }}
{{- if and .Values.deviceClasses.create $presets.mps }}
{{- $names = append $names (printf "mps.%s" .Values.settings.driverName | quote) }}
{{- end }}
{{- join ", " $names }}
{{- end }}
