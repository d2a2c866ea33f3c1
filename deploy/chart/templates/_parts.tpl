{{- define "rmqpy.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}

{{- define "rmqpy.labels" -}}
app.kubernetes.io/name: rmqpy
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "rmqpy.nameServers" -}}
{{- $name := include "rmqpy.name" . -}}
{{- range $i := until (int .Values.nameServers.replicas) }}{{ if $i }};{{ end }}{{ $name }}-namesrv-{{ $i }}.{{ $name }}-namesrv:9876{{ end }}
{{- end }}

{{- define "rmqpy.shared" -}}
{{- if .Values.tls.secret }}
tls.server.mode=enforcing
tls.server.certPath=/etc/rmqpy-tls/tls.crt
tls.server.keyPath=/etc/rmqpy-tls/tls.key
tls.enable=true
tls.client.trustCertPath=/etc/rmqpy-tls/ca.crt
{{- with .Values.tls.serverName }}
tls.client.serverName={{ . }}
{{- end }}
{{- end }}
{{- if .Values.users.secret }}
authenticationEnabled=true
authorizationEnabled=true
{{- end }}
{{- end }}

{{/* Helm reads numbers as floating point, and would write 1073741824 as 1.073741824e+09. */}}
{{- define "rmqpy.settings" -}}
{{- range $key, $value := . }}
{{- $isWhole := and (kindIs "float64" $value) (eq (toString (floor $value)) (toString $value)) }}
{{ $key }}={{ if $isWhole }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- end }}

{{- define "rmqpy.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "rmqpy.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "rmqpy.mounts" -}}
- { name: data, mountPath: /data }
- { name: tmp, mountPath: /tmp }
- { name: settings, mountPath: /etc/rmqpy }
{{- if .Values.tls.secret }}
- { name: tls, mountPath: /etc/rmqpy-tls }
{{- end }}
{{- if .Values.users.secret }}
- { name: users, mountPath: /etc/rmqpy-users }
{{- end }}
{{- end }}

{{- define "rmqpy.volumes" -}}
- name: tmp
  emptyDir: { medium: Memory, sizeLimit: 64Mi }
- name: settings
  configMap: { name: {{ include "rmqpy.name" . }} }
{{- if .Values.tls.secret }}
- name: tls
  secret: { secretName: {{ .Values.tls.secret }}, defaultMode: 0440 }
{{- end }}
{{- if .Values.users.secret }}
- name: users
  secret: { secretName: {{ .Values.users.secret }}, defaultMode: 0440 }
{{- end }}
{{- end }}

{{/* /readyz says more than that the port is open, and requires the token where requests are signed: a probe has none. */}}
{{- define "rmqpy.readiness" -}}
{{- if .root.Values.users.secret }}
tcpSocket: { port: {{ .port }} }
{{- else }}
httpGet: { path: /readyz, port: http, scheme: {{ include "rmqpy.scheme" .root }} }
{{- end }}
{{- end }}

{{- define "rmqpy.scheme" -}}{{ if .Values.tls.secret }}HTTPS{{ else }}HTTP{{ end }}{{- end }}

{{- define "rmqpy.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "rmqpy.claim" -}}
- metadata: { name: data }
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .storageClass }}
    storageClassName: {{ . }}
    {{- end }}
    resources: { requests: { storage: {{ .size }} } }
{{- end }}
