{{/* The groups of alerts with the changes of metrics.rules. */}}
{{- define "squelch.rules" -}}
{{- $values := .Values.metrics.rules -}}
{{- $file := .Files.Get "files/rules.yaml" | fromYaml -}}
{{- $changes := deepCopy $values.alerts -}}
{{- range $group := $file.groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- $change := get $changes $rule.alert | default dict -}}
{{- $changes = omit $changes $rule.alert -}}
{{- if or (not (hasKey $change "enabled")) $change.enabled -}}
{{- $_ := set $rule "expr" (include "squelch.expression" (dict "rule" $rule "change" $change "cluster" $values.clusterLabel)) -}}
{{- with $change.for }}{{ $_ := set $rule "for" . }}{{ end -}}
{{- with $change.severity }}{{ $_ := set $rule.labels "severity" . }}{{ end -}}
{{- $_ := set $rule "labels" (merge $rule.labels $values.alertLabels) -}}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s#%s" $values.runbookUrl (lower $rule.alert)) -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- $_ := set $group "rules" $rules -}}
{{- end -}}
{{- if $changes -}}
{{- fail (printf "metrics.rules.alerts: there is no alert %s; docs/runbooks.md lists all" (keys $changes | sortAlpha | join ", ")) -}}
{{- end -}}
{{- toYaml $file -}}
{{- end }}

{{/* The expression of an alert: {rule, change, cluster}. */}}
{{- define "squelch.expression" -}}
{{- $expression := .rule.expr -}}
{{- if hasKey .change "threshold" -}}
{{- $last := "[0-9.]+( \\* [0-9]+)?$" -}}
{{- if not (regexMatch $last $expression) -}}
{{- fail (printf "metrics.rules.alerts.%s.threshold: this alert has no threshold" .rule.alert) -}}
{{- end -}}
{{- $expression = regexReplaceAll $last $expression (.change.threshold | toString) -}}
{{- end -}}
{{- with .cluster -}}
{{- if hasPrefix "absent(" $expression -}}
{{- /* A cluster has no active replica if it had metrics within a day, and has none now. */ -}}
{{- $expression = printf "group by (%s) (last_over_time(squelch_active[1d])) unless group by (%s) (squelch_active == 1)" . . -}}
{{- end -}}
{{- $expression = regexReplaceAll "\\b(sum|max|min) by \\(" $expression (printf "${1} by (%s, " .) -}}
{{- $expression = regexReplaceAll "\\bon \\(" $expression (printf "on (%s, " .) -}}
{{- $expression = regexReplaceAll "\\b(sum|max|min)\\(" $expression (printf "${1} by (%s) (" .) -}}
{{- end -}}
{{- $expression -}}
{{- end }}
