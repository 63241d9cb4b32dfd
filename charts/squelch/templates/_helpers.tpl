{{/* The name of all objects: the release name, with "squelch" appended unless it contains it. */}}
{{- define "squelch.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* The selector labels of the pods. Immutable. */}}
{{- define "squelch.selector" -}}
app.kubernetes.io/name: squelch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "squelch.labels" -}}
{{- $own := include "squelch.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version) -}}
{{ merge $own .Values.commonLabels | toYaml }}
{{- end }}

{{- define "squelch.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The name of the Secret with the authority and the token. squelch creates the Secret. */}}
{{- define "squelch.secret" -}}
{{ include "squelch.name" . }}-webhook
{{- end }}

{{/* Converts a duration such as 1m30s to whole seconds, rounded up. */}}
{{- define "squelch.seconds" -}}
{{- $seconds := 0 -}}
{{- range regexFindAll "[0-9]+(ms|h|m|s)" . -1 -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- if eq $unit "h" }}{{ $seconds = add $seconds (mul $number 3600) }}
{{- else if eq $unit "m" }}{{ $seconds = add $seconds (mul $number 60) }}
{{- else if eq $unit "s" }}{{ $seconds = add $seconds $number }}
{{- else }}{{ $seconds = add $seconds (div (add $number 999) 1000) }}
{{- end -}}
{{- end -}}
{{- $seconds -}}
{{- end }}

{{/* The security context of every container: Pod Security "restricted". */}}
{{- define "squelch.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "squelch.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Whether the cluster has a CRD of Prometheus Operator. For `helm template` set --api-versions. */}}
{{- define "squelch.monitors" -}}
{{- $versions := .root.Capabilities.APIVersions -}}
{{- if or ($versions.Has (printf "monitoring.coreos.com/v1/%s" .kind)) ($versions.Has "monitoring.coreos.com/v1") -}}yes{{- end -}}
{{- end }}

{{/* Metadata of the objects of the uninstall hook: {root, weight, namespaced}. */}}
{{- define "squelch.uninstall" -}}
name: {{ include "squelch.name" .root }}-uninstall
{{- if .namespaced }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "squelch.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: pre-delete
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Metadata of objects that exist only during `helm test`: {root, weight, namespaced, pod}. A failed pod is
kept, with its log. */}}
{{- define "squelch.doctor" -}}
name: {{ include "squelch.name" .root }}-doctor
{{- if .namespaced }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels:
  {{- if .pod }}
  app.kubernetes.io/name: squelch-doctor
  app.kubernetes.io/instance: {{ .root.Release.Name }}
  {{- else }}
  {{- include "squelch.labels" .root | nindent 2 }}
  {{- end }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
