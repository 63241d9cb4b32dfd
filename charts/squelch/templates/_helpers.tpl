{{/* The name of all objects: the release name, with "squelch" appended unless it contains it. */}}
{{- define "squelch.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* The selector labels of the pods. Immutable. */}}
{{- define "squelch.selector" -}}
app.kubernetes.io/name: squelch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of every object that no value overrides. A version may have a "+", which no label may have. */}}
{{- define "squelch.ownLabels" -}}
{{- $own := include "squelch.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{ toYaml $own }}
{{- end }}

{{- define "squelch.labels" -}}
{{ merge (include "squelch.ownLabels" . | fromYaml) .Values.commonLabels | toYaml }}
{{- end }}

{{/* The metadata of an object: {root, name, namespace, labels, annotations}; all but root and name are optional. Its
labels override the common ones, and the chart's own override both. */}}
{{- define "squelch.metadata" -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- merge (include "squelch.ownLabels" .root | fromYaml) (.labels | default dict) .root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "squelch.image" -}}
{{- $repository := .Values.image.repository -}}
{{- if not $repository -}}
{{- fail "image.repository is empty: no image is published before the first release; build one with `./justw image`, push it to a registry, and give its repository (docs/installation.md)" -}}
{{- end -}}
{{- with .Values.global.imageRegistry -}}
{{- $parts := splitList "/" $repository -}}
{{- $has_registry := and (gt (len $parts) 1) (or (regexMatch "[.:]" (first $parts)) (eq (first $parts) "localhost")) -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) ($has_registry | ternary (rest $parts) $parts | join "/") -}}
{{- end -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ $repository }}@{{ .digest }}
{{- else -}}
{{ $repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The Secrets to pull the image: a field of a pod, or nothing. */}}
{{- define "squelch.pullSecrets" -}}
{{- $names := list -}}
{{- range concat .Values.image.pullSecrets .Values.global.imagePullSecrets -}}
{{- $names = append $names (kindIs "string" . | ternary . (get (kindIs "string" . | ternary dict .) "name")) -}}
{{- end -}}
{{- with uniq $names -}}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end -}}
{{- end }}

{{/* The IP families of a Service. */}}
{{- define "squelch.ipFamilies" -}}
{{- with .Values.service.ipFamilyPolicy }}
  ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
  ipFamilies: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "squelch.serviceAccount" -}}
{{- if or .Values.serviceAccount.create .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name | default (include "squelch.name" .) -}}
{{- else -}}
{{- fail "serviceAccount.name is empty: without serviceAccount.create the chart needs the name of an existing ServiceAccount" -}}
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

{{/* Whether the cluster has a CRD of Prometheus Operator. For `helm template` set --api-versions: a version without its
kinds stands for all of them. */}}
{{- define "squelch.monitors" -}}
{{- $versions := .root.Capabilities.APIVersions -}}
{{- $kinds := false -}}
{{- range $versions }}{{ if hasPrefix "monitoring.coreos.com/v1/" . }}{{ $kinds = true }}{{ end }}{{ end -}}
{{- if or ($versions.Has (printf "monitoring.coreos.com/v1/%s" .kind)) (and ($versions.Has "monitoring.coreos.com/v1") (not $kinds)) -}}yes{{- end -}}
{{- end }}

{{/* Metadata of the objects of the uninstall hook: {root, weight, namespace}. */}}
{{- define "squelch.uninstall" -}}
{{- $hook := dict "helm.sh/hook" "pre-delete" "helm.sh/hook-weight" .weight -}}
{{- $_ := set $hook "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" -}}
{{- $name := printf "%s-uninstall" (include "squelch.name" .root) -}}
{{- include "squelch.metadata" (dict "root" .root "name" $name "namespace" .namespace "annotations" $hook) -}}
{{- end }}

{{/* Metadata of objects that exist only during `helm test`: {root, weight, namespace}. A failed pod is kept, with its
log. */}}
{{- define "squelch.doctor" -}}
{{- $hook := dict "helm.sh/hook" "test" "helm.sh/hook-weight" .weight -}}
{{- $_ := set $hook "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" -}}
{{- $name := printf "%s-doctor" (include "squelch.name" .root) -}}
{{- include "squelch.metadata" (dict "root" .root "name" $name "namespace" .namespace "annotations" $hook) -}}
{{- end }}
