{{/* The spec of an autoscaler by CPU. Takes: target, autoscaling. */}}
{{- define "tickrail.byCpu" -}}
scaleTargetRef:
  apiVersion: apps/v1
  kind: Deployment
  name: {{ .target }}
minReplicas: {{ .autoscaling.minReplicas }}
maxReplicas: {{ .autoscaling.maxReplicas }}
metrics:
  - type: Resource
    resource:
      name: cpu
      target:
        type: Utilization
        averageUtilization: {{ .autoscaling.targetCPUUtilizationPercentage }}
{{- with .autoscaling.behavior }}
behavior:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
The spec of a KEDA scaler of workers: messages of their queues that nobody has read, and how long
the oldest due launch of the installation waits to be published, which happens where workers are too
slow for what is in Kafka already. Takes: root, target, conf.
*/}}
{{- define "tickrail.byLag" -}}
{{- $keda := .conf.autoscaling.keda -}}
{{- $queues := list -}}
{{- range .conf.queues }}{{ $queues = append $queues (regexQuoteMeta . | replace "\\" "\\\\") }}{{ end -}}
{{- $prefix := regexQuoteMeta .root.Values.kafka.topicPrefix | replace "\\" "\\\\" -}}
{{- $topics := printf "%s\\\\.(launch\\\\.(%s)\\\\.(high|normal|low)|retry\\\\.(%s))" $prefix (join "|" $queues) (join "|" $queues) -}}
{{- $address := required "worker.autoscaling.keda.prometheusAddress: where Prometheus answers" $keda.prometheusAddress -}}
scaleTargetRef:
  name: {{ .target }}
minReplicaCount: {{ .conf.autoscaling.minReplicas }}
maxReplicaCount: {{ .conf.autoscaling.maxReplicas }}
pollingInterval: {{ $keda.pollingInterval }}
cooldownPeriod: {{ $keda.cooldownPeriod }}
{{- with .conf.autoscaling.behavior }}
advanced:
  horizontalPodAutoscalerConfig:
    behavior:
      {{- toYaml . | nindent 6 }}
{{- end }}
triggers:
  - type: prometheus
    name: lag
    metricType: AverageValue
    metadata:
      serverAddress: {{ $address }}
      query: {{ printf "sum(tickrail_consumer_lag{namespace=%q,topic=~\"%s\"}) or vector(0)" .root.Release.Namespace $topics | quote }}
      threshold: {{ $keda.lagPerReplica | int64 | toString | quote }}
    {{- with $keda.authenticationRef }}
    authenticationRef:
      name: {{ . }}
    {{- end }}
  {{- if $keda.oldestDueSeconds }}
  - type: prometheus
    name: oldest-due
    metricType: Value
    metadata:
      serverAddress: {{ $address }}
      query: {{ printf "max(tickrail_oldest_due_seconds{namespace=%q}) or vector(0)" .root.Release.Namespace | quote }}
      threshold: {{ $keda.oldestDueSeconds | int64 | toString | quote }}
    {{- with $keda.authenticationRef }}
    authenticationRef:
      name: {{ . }}
    {{- end }}
  {{- end }}
{{- end -}}
