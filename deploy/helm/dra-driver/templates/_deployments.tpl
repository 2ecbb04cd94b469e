{{- define "dra-driver.webhook" -}}
{{ include "dra-driver.fullname" . }}-webhook
{{- end }}

{{- define "dra-driver.controller" -}}
{{ include "dra-driver.fullname" . }}-controller
{{- end }}

{{- define "dra-driver.controllerSelector" -}}
app.kubernetes.io/name: {{ include "dra-driver.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "dra-driver.controllerLabels" -}}
{{ include "dra-driver.controllerSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* The Secret with the webhook's certificate. cert-manager's has another name: type and owner of
a Secret cannot change. */}}
{{- define "dra-driver.webhookSecret" -}}
{{ include "dra-driver.webhook" . }}-{{ ternary "tls" "certificate" .Values.webhook.certManager.enabled }}
{{- end }}

{{- /* Whether the webhook asks the API server for anything. */}}
{{- define "dra-driver.webhookAsks" -}}
{{- if or (not .Values.webhook.certManager.enabled) .Values.webhook.convert.enabled }}true{{ end }}
{{- end }}

{{- define "dra-driver.webhookFlags" -}}
{{- $webhook := include "dra-driver.webhook" . }}
{{- $settings := dict
  "checkSeconds" .Values.webhook.checkSeconds
  "configuration" $webhook
  "convert" .Values.webhook.convert.enabled
  "convertReplicas" .Values.webhook.convert.replicas
  "convertWholeGpus" .Values.webhook.convert.wholeGpus
  "drainSeconds" .Values.webhook.drainSeconds
  "driverName" .Values.settings.driverName
  "fleetSeconds" .Values.webhook.convert.fleetSeconds
  "logFormat" .Values.settings.logFormat
  "logLevel" .Values.settings.logLevel
  "mutatingConfiguration" $webhook
  "namespace" .Release.Namespace
  "secret" (include "dra-driver.webhookSecret" .)
  "service" $webhook
  "shareClass" .Values.webhook.convert.shareClass }}
{{- if .Values.webhook.certManager.enabled }}
{{- $_ := set $settings "certificateDir" "/certificate" }}
{{- end }}
{{- include "dra-driver.flagsOf" $settings }}
{{- end }}

{{- define "dra-driver.controllerFlags" -}}
{{- include "dra-driver.flagsOf" (dict
  "convertedTemplates" (eq (include "dra-driver.converts" .) "true")
  "driverName" .Values.settings.driverName
  "graceSeconds" .Values.controller.graceSeconds
  "lease" (include "dra-driver.controller" .)
  "leaseSeconds" .Values.controller.leaseSeconds
  "logFormat" .Values.settings.logFormat
  "logLevel" .Values.settings.logLevel
  "matchingSeconds" .Values.controller.matchingSeconds
  "namespace" .Release.Namespace
  "parameters" .Values.controller.parameters
  "parametersSeconds" .Values.controller.parametersSeconds
  "retrySeconds" .Values.controller.retrySeconds
  "sweepSeconds" .Values.controller.sweepSeconds
  "unusedSeconds" .Values.controller.unusedSeconds) }}
{{- end }}

{{- /* Whether pods are converted. */}}
{{- define "dra-driver.converts" -}}
{{- if and .Values.webhook.enabled .Values.webhook.convert.enabled }}true{{ end }}
{{- end }}

{{- /* OpenShift gives pods that name no user one of their namespace's, and refuses others. */}}
{{- define "dra-driver.onOpenShift" -}}
{{- if or (eq (toString .Values.openshift.scc) "true") (.Capabilities.APIVersions.Has "security.openshift.io/v1") }}true{{ end }}
{{- end }}

{{- /* What the pods of webhook and controller have in common. Of a dict: the chart's `root`, the
`values` of the part, its `selector`. */}}
{{- define "dra-driver.unprivilegedPod" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
enableServiceLinks: false
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- if not (include "dra-driver.onOpenShift" .root) }}
  runAsUser: 65532
  runAsGroup: 65532
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- .selector | nindent 6 }}
{{- end }}

{{- define "dra-driver.unprivilegedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
