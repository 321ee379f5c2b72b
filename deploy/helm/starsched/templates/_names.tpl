{{/* Names, labels and the lease. */}}

{{- define "starsched.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Of the objects in the release's namespace. Longer names are made from it: 40 characters leave space for them. */}}
{{- define "starsched.fullname" -}}
{{- $name := include "starsched.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | replace "." "-" | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Of the objects elsewhere, where releases of one name in two namespaces must not meet. */}}
{{- define "starsched.clusterName" -}}
{{- $fullname := include "starsched.fullname" . }}
{{- if eq $fullname .Release.Namespace }}
{{- $fullname }}
{{- else }}
{{- printf "%s-%s" .Release.Namespace $fullname }}
{{- end }}
{{- end }}

{{- define "starsched.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "starsched.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The ConfigMap of policies. */}}
{{- define "starsched.policies" -}}
{{- default (printf "%s-policies" (include "starsched.fullname" .)) .Values.existingConfigMap }}
{{- end }}

{{/* "yes" if it takes kube-scheduler's place: its lease and its pods. */}}
{{- define "starsched.replaces" -}}
{{- if ne .Values.mode "beside" }}yes{{ end }}
{{- end }}

{{/* "yes" if the chart makes no pods, because kubelet starts those of a file. */}}
{{- define "starsched.isStaticPod" -}}
{{- if eq .Values.mode "static-pod" }}yes{{ end }}
{{- end }}

{{/* "yes" if the scheduler makes the webhook's certificate and key, and writes them where they belong. */}}
{{- define "starsched.registersItself" -}}
{{- if and .Values.webhook.enabled .Values.webhook.selfMade }}yes{{ end }}
{{- end }}

{{/* Who schedules, as the subject of bindings. */}}
{{- define "starsched.subject" -}}
{{- if include "starsched.isStaticPod" . -}}
apiGroup: rbac.authorization.k8s.io
kind: User
name: system:kube-scheduler
{{- else -}}
kind: ServiceAccount
name: {{ include "starsched.serviceAccount" . | quote }}
namespace: {{ .Release.Namespace | quote }}
{{- end }}
{{- end }}

{{- define "starsched.leaseName" -}}
{{- if include "starsched.replaces" . }}kube-scheduler
{{- else }}{{ default (include "starsched.fullname" .) .Values.leaderElection.name }}
{{- end }}
{{- end }}

{{- define "starsched.leaseNamespace" -}}
{{- if include "starsched.replaces" . }}kube-system
{{- else }}{{ default .Release.Namespace .Values.leaderElection.namespace }}
{{- end }}
{{- end }}

{{- define "starsched.selectorLabels" -}}
app.kubernetes.io/name: starsched
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "starsched.labels" -}}
{{ include "starsched.selectorLabels" . }}
app.kubernetes.io/component: scheduler
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The YAML documents of a text, as a JSON list. */}}
{{- define "starsched.documents" -}}
{{- $found := list }}
{{- range regexSplit "(?m)^---\\s*$" . -1 }}
{{- with fromYaml . }}
{{- $found = append $found . }}
{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{- /* Those that say where policies come from: of a static pod, these alone. */}}
{{- define "starsched.policyFlags" -}}
- --policies=configmap:{{ .Release.Namespace }}/{{ include "starsched.policies" . }}
{{- if ne .Values.whenNoPolicies "wait" }}
- --when-no-policies={{ .Values.whenNoPolicies }}
{{- end }}
{{- if ne .Values.whenUnreadable "wait" }}
- --when-unreadable={{ .Values.whenUnreadable }}
{{- end }}
{{- end }}

{{- /* The flags of `starsched run`, and of the test that checks what it needs. */}}
{{- define "starsched.flags" -}}
{{- $leaseName := include "starsched.leaseName" . -}}
{{ include "starsched.policyFlags" . }}
- --state-dir=/var/lib/starsched
- --leader-elect
- --leader-elect-resource-namespace={{ include "starsched.leaseNamespace" . }}
{{- if ne $leaseName "starsched" }}
- --leader-elect-resource-name={{ $leaseName }}
{{- end }}
- --secure-port={{ .Values.securePort }}
{{- if .Values.localPort }}
# For `kubectl port-forward`, which the rules of the cluster guard.
- --local-port={{ .Values.localPort }}
{{- end }}
{{- if include "starsched.registersItself" . }}
- --admission-webhook={{ include "starsched.clusterName" . }}
{{- else if .Values.webhook.enabled }}
- --tls-cert-file=/etc/starsched/webhook/tls.crt
- --tls-private-key-file=/etc/starsched/webhook/tls.key
- --admission-key-file=/etc/starsched/webhook/key
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- /* What the scheduler's container and those of preflight have alike. */}}
{{- define "starsched.container" -}}
image: {{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: state
    mountPath: /var/lib/starsched
  {{- if and .Values.webhook.enabled (not (include "starsched.registersItself" .)) }}
  - name: webhook
    mountPath: /etc/starsched/webhook
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* The volumes that it mounts. */}}
{{- define "starsched.volumes" -}}
# The last good policies outlive a crash of the container here.
- name: state
  emptyDir: {sizeLimit: 64Mi}
{{- if and .Values.webhook.enabled (not (include "starsched.registersItself" .)) }}
{{- $name := printf "%s-webhook" (include "starsched.fullname" .) }}
- name: webhook
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ $name | quote }}
          items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
      - secret:
          name: "{{ $name }}-key"
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
