{{- define "hutch.labels" -}}
app.kubernetes.io/name: hutch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hutch.hosts" -}}
{{ .Release.Name }},{{ .Release.Name }}.{{ .Release.Namespace }},{{ .Release.Name }}.{{ .Release.Namespace }}.svc,{{ .Release.Name }}.{{ .Release.Namespace }}.svc.cluster.local{{ if .Values.ingress.enabled }},{{ .Values.ingress.host }}{{ end }}
{{- end }}

{{- define "hutch.pairs" -}}
{{- $comma := "" -}}
{{- range $key, $value := . }}{{ $comma }}{{ $key }}={{ $value }}{{ $comma = "," }}{{ end -}}
{{- end }}
