{{/*
One process of the installation: a deployment and its disruption budget.
Takes: root, component, name (of the objects), pool (of workers), conf, urlKey, replicas (null: an
autoscaler says), strategy, grace (seconds).
*/}}
{{- define "tickrail.process" -}}
{{- $root := .root -}}
{{- $args := mergeOverwrite (dict "urlSecret" (required "database.existingSecret: the secret with the URLs of PostgreSQL" $root.Values.database.existingSecret) "account" (include "tickrail.serviceAccount" $root)) . -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels:
    {{- include "tickrail.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  {{- if not (kindIs "invalid" .replicas) }}
  replicas: {{ .replicas }}
  {{- end }}
  minReadySeconds: {{ .conf.minReadySeconds }}
  revisionHistoryLimit: 5
  strategy:
    {{- toYaml .strategy | nindent 4 }}
  selector:
    matchLabels:
      {{- include "tickrail.processSelector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "tickrail.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        tickrail/status: "true"
        {{- with .pool }}
        tickrail/pool: {{ . }}
        {{- end }}
        {{- with .conf.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .conf.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "tickrail.podCommon" $args | nindent 6 }}
      {{- if and (eq .component "worker") (has "command" .conf.targets) }}
      # What a command leaves behind is reaped by the pod's first process.
      shareProcessNamespace: true
      {{- end }}
      terminationGracePeriodSeconds: {{ .grace }}
      topologySpreadConstraints:
        {{- include "tickrail.spread" . | nindent 8 }}
      containers:
        - name: {{ .component }}
          args: [{{ .component }}]
          {{- include "tickrail.containerCommon" $args | nindent 10 }}
          ports:
            {{- if eq .component "api" }}
            - {name: http, containerPort: 8080}
            {{- end }}
            - {name: status, containerPort: 9100}
          startupProbe:
            httpGet: {path: /healthz, port: status}
            {{- toYaml .conf.startupProbe | nindent 12 }}
          livenessProbe:
            httpGet: {path: /healthz, port: status}
            {{- toYaml .conf.livenessProbe | nindent 12 }}
          readinessProbe:
            httpGet: {path: /readyz, port: status}
            {{- toYaml .conf.readinessProbe | nindent 12 }}
{{- if .conf.pdb.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels:
    {{- include "tickrail.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  maxUnavailable: {{ .conf.pdb.maxUnavailable }}
  # A pod that is not ready does no work that an eviction could harm.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "tickrail.processSelector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "tickrail.processSelector" -}}
{{ include "tickrail.selector" .root }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
tickrail/pool: {{ . }}
{{- end }}
{{- end -}}

{{- define "tickrail.spread" -}}
{{- $selector := include "tickrail.processSelector" . | fromYaml -}}
{{- $usual := list
  (dict "maxSkew" 1 "topologyKey" "topology.kubernetes.io/zone" "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash"))
  (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash")) -}}
{{- $all := list -}}
{{- range (ternary $usual .conf.topologySpreadConstraints (kindIs "invalid" .conf.topologySpreadConstraints)) -}}
{{- $all = append $all (merge (dict "labelSelector" (dict "matchLabels" $selector)) .) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* The configuration of a process: `defaults`, then its own, then its pool's; as JSON. */}}
{{- define "tickrail.conf" -}}
{{- $conf := deepCopy .root.Values.defaults -}}
{{- range .layers }}{{ $conf = mergeOverwrite $conf (deepCopy (default dict .)) }}{{ end -}}
{{- toJson $conf -}}
{{- end -}}
