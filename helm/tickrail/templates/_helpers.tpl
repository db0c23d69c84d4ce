{{/* Names and labels. */}}
{{- define "tickrail.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tickrail.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tickrail.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "tickrail.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: tickrail
{{- end -}}

{{- define "tickrail.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tickrail.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tickrail.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* A value as the text of a variable: whole numbers without an exponent. */}}
{{- define "tickrail.text" -}}
{{- if kindIs "float64" . -}}{{- int64 . | toString | quote -}}{{- else -}}{{- toString . | quote -}}{{- end -}}
{{- end -}}

{{/* Whether a kind of process speaks to a server. Takes: component, server. "" is no. */}}
{{- define "tickrail.needs" -}}
{{- $needs := dict
  "api" (list "database" "etcd")
  "scheduler" (list "database" "etcd" "kafka")
  "worker" (list "database" "kafka")
  "watchdog" (list "database")
  "migrate" (list "database")
  "bootstrap" (list "database") -}}
{{- if has .server (get $needs .component) }}yes{{ end -}}
{{- end -}}

{{/* Where the files of a server's secret are. */}}
{{- define "tickrail.tlsDir" -}}/etc/tickrail/tls/{{ . }}{{- end -}}

{{/* An entry of `env` from a secret. Takes: name, secret, key. */}}
{{- define "tickrail.fromSecret" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end -}}

{{/*
What each kind of process is told, as a dict of plain settings. Takes: root, component, conf.
Order: what the chart knows, `settings` of all, `settings` of the process.
*/}}
{{- define "tickrail.settings" -}}
{{- $v := .root.Values -}}
{{- $d := dict "TICKRAIL_LOG_FORMAT" "json" "TICKRAIL_STATUS_HOST" "0.0.0.0" "TICKRAIL_STATUS_PORT" "9100" -}}
{{- if not (kindIs "invalid" $v.partitions) }}{{ $_ := set $d "TICKRAIL_PARTITIONS" $v.partitions }}{{ end -}}
{{- if not $v.database.prepareStatements }}{{ $_ := set $d "TICKRAIL_PREPARE_STATEMENTS" false }}{{ end -}}
{{- if $v.database.tls.enabled -}}
{{-   $dir := include "tickrail.tlsDir" "postgres" -}}
{{-   $_ := set $d "PGSSLMODE" $v.database.tls.mode -}}
{{-   $_ := set $d "PGSSLROOTCERT" (printf "%s/ca.crt" $dir) -}}
{{-   if $v.database.tls.clientCert -}}
{{-     $_ := set $d "PGSSLCERT" (printf "%s/tls.crt" $dir) -}}
{{-     $_ := set $d "PGSSLKEY" (printf "%s/tls.key" $dir) -}}
{{-   end -}}
{{- end -}}
{{- if include "tickrail.needs" (dict "component" .component "server" "etcd") -}}
{{-   $_ := set $d "TICKRAIL_ETCD_ENDPOINTS" (join "," $v.etcd.endpoints) -}}
{{-   $_ := set $d "TICKRAIL_ETCD_PREFIX" $v.etcd.prefix -}}
{{-   if $v.etcd.tls.enabled -}}
{{-     $dir := include "tickrail.tlsDir" "etcd" -}}
{{-     $_ := set $d "TICKRAIL_ETCD_CA_FILE" (printf "%s/ca.crt" $dir) -}}
{{-     if $v.etcd.tls.clientCert -}}
{{-       $_ := set $d "TICKRAIL_ETCD_CERT_FILE" (printf "%s/tls.crt" $dir) -}}
{{-       $_ := set $d "TICKRAIL_ETCD_KEY_FILE" (printf "%s/tls.key" $dir) -}}
{{-     end -}}
{{-   end -}}
{{- end -}}
{{- if not (has .component (list "migrate" "bootstrap")) }}{{ $_ := set $d "TICKRAIL_TOPIC_PREFIX" $v.kafka.topicPrefix }}{{ end -}}
{{- if include "tickrail.needs" (dict "component" .component "server" "kafka") -}}
{{-   $_ := set $d "TICKRAIL_KAFKA_BOOTSTRAP" (join "," $v.kafka.bootstrap) -}}
{{-   $_ := set $d "TICKRAIL_KAFKA_GROUP" $v.kafka.group -}}
{{-   $sasl := ne $v.kafka.sasl.mechanism "" -}}
{{-   $_ := set $d "TICKRAIL_KAFKA_SECURITY_PROTOCOL" (ternary (ternary "SASL_SSL" "SSL" $sasl) (ternary "SASL_PLAINTEXT" "PLAINTEXT" $sasl) $v.kafka.tls.enabled) -}}
{{-   if $sasl }}{{ $_ := set $d "TICKRAIL_KAFKA_SASL_MECHANISM" $v.kafka.sasl.mechanism }}{{ end -}}
{{-   if $v.kafka.tls.enabled -}}
{{-     $dir := include "tickrail.tlsDir" "kafka" -}}
{{-     $_ := set $d "TICKRAIL_KAFKA_CA_FILE" (printf "%s/ca.crt" $dir) -}}
{{-     if $v.kafka.tls.clientCert -}}
{{-       $_ := set $d "TICKRAIL_KAFKA_CERT_FILE" (printf "%s/tls.crt" $dir) -}}
{{-       $_ := set $d "TICKRAIL_KAFKA_KEY_FILE" (printf "%s/tls.key" $dir) -}}
{{-     end -}}
{{-   end -}}
{{- end -}}
{{- if has .component (list "api" "worker" "watchdog") -}}
{{-   with $v.egress.allow }}{{ $_ := set $d "TICKRAIL_EGRESS_ALLOW" (join "," .) }}{{ end -}}
{{-   with $v.egress.deny }}{{ $_ := set $d "TICKRAIL_EGRESS_DENY" (join "," .) }}{{ end -}}
{{- end -}}
{{- if and $v.tracing.endpoint (not (has .component (list "migrate" "bootstrap"))) -}}
{{-   $_ := set $d "TICKRAIL_TRACE_ENDPOINT" $v.tracing.endpoint -}}
{{-   $_ := set $d "TICKRAIL_TRACE_SAMPLE" $v.tracing.sample -}}
{{- end -}}
{{- if eq .component "api" -}}
{{-   $_ := set $d "TICKRAIL_API_HOST" "0.0.0.0" -}}
{{-   $_ := set $d "TICKRAIL_API_PORT" "8080" -}}
{{-   $_ := set $d "TICKRAIL_API_DRAIN_DELAY" .conf.drainDelaySeconds -}}
{{- end -}}
{{- if eq .component "worker" -}}
{{-   $_ := set $d "TICKRAIL_WORKER_QUEUES" (join "," .conf.queues) -}}
{{-   $_ := set $d "TICKRAIL_WORKER_TARGETS" (join "," .conf.targets) -}}
{{-   $_ := set $d "TICKRAIL_WORKER_CONCURRENCY" .conf.concurrency -}}
{{-   $_ := set $d "TICKRAIL_DRAIN_GRACE" .conf.drainGraceSeconds -}}
{{- end -}}
{{- if has .component (list "worker" "watchdog") -}}
{{-   if $v.webhookCa.existingSecret }}{{ $_ := set $d "TICKRAIL_WEBHOOK_CA_FILE" (printf "%s/ca.crt" (include "tickrail.tlsDir" "webhooks")) }}{{ end -}}
{{- end -}}
{{- $d = mergeOverwrite $d $v.settings (default dict .conf.settings) -}}
{{- range $name, $value := $d }}
- name: {{ $name }}
  value: {{ include "tickrail.text" $value }}
{{- end -}}
{{- end -}}

{{/* What comes from secrets. Takes: root, component, urlSecret, urlKey. */}}
{{- define "tickrail.secrets" -}}
{{- $v := .root.Values -}}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_DATABASE_URL" "secret" .urlSecret "key" .urlKey) }}
{{- if include "tickrail.needs" (dict "component" .component "server" "etcd") }}
{{- with $v.etcd.auth }}{{ if .existingSecret }}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_ETCD_USERNAME" "secret" .existingSecret "key" .usernameKey) }}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_ETCD_PASSWORD" "secret" .existingSecret "key" .passwordKey) }}
{{- end }}{{ end }}
{{- end }}
{{- if include "tickrail.needs" (dict "component" .component "server" "kafka") }}
{{- with $v.kafka.sasl }}{{ if .mechanism }}
{{- $secret := required "kafka.sasl.existingSecret: the secret with user and password for kafka.sasl.mechanism" .existingSecret }}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_KAFKA_SASL_USERNAME" "secret" $secret "key" .usernameKey) }}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_KAFKA_SASL_PASSWORD" "secret" $secret "key" .passwordKey) }}
{{- end }}{{ end }}
{{- with $v.kafka.tls }}{{ if and .enabled .clientCert .keyPasswordKey }}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_KAFKA_KEY_PASSWORD" "secret" .existingSecret "key" .keyPasswordKey) }}
{{- end }}{{ end }}
{{- end }}
{{- with $v.keys }}{{ if .existingSecret }}
{{- if has $.component (list "api" "worker") }}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_SECRET_KEYS" "secret" .existingSecret "key" .secretKeysKey) }}
{{- end }}
{{- if and .pepperKey (has $.component (list "api" "bootstrap")) }}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_KEY_PEPPER" "secret" .existingSecret "key" .pepperKey) }}
{{- end }}
{{- end }}{{ end }}
{{- end -}}

{{/* What else comes from secrets: of the watchdog, and of tracing. Takes: root, component, conf. */}}
{{- define "tickrail.moreSecrets" -}}
{{- if eq .component "watchdog" }}{{ with .conf.webhook }}{{ if .existingSecret }}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_WATCHDOG_WEBHOOK" "secret" .existingSecret "key" .urlKey) }}
{{- if .signingKey }}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_WATCHDOG_WEBHOOK_SECRET" "secret" .existingSecret "key" .signingKey) }}
{{- end }}
{{- end }}{{ end }}{{ end }}
{{- if not (has .component (list "migrate" "bootstrap")) }}{{ with .root.Values.tracing }}{{ if and .endpoint .headersSecret }}
{{ include "tickrail.fromSecret" (dict "name" "TICKRAIL_TRACE_HEADERS" "secret" .headersSecret "key" .headersKey) }}
{{- end }}{{ end }}{{ end }}
{{- end -}}

{{/* The servers whose files a process needs. Takes: root, component, conf. Gives a dict as JSON. */}}
{{- define "tickrail.tlsOf" -}}
{{- $v := .root.Values -}}
{{- $found := dict -}}
{{- if $v.database.tls.enabled }}{{ $_ := set $found "postgres" (merge (dict "of" "database.tls") $v.database.tls) }}{{ end -}}
{{- range $server := list "etcd" "kafka" -}}
{{-   $tls := (get $v $server).tls -}}
{{-   if and $tls.enabled (include "tickrail.needs" (dict "component" $.component "server" $server)) -}}
{{-     $_ := set $found $server (merge (dict "of" (printf "%s.tls" $server)) $tls) -}}
{{-   end -}}
{{- end -}}
{{- if has .component (list "worker" "watchdog") -}}
{{-   with $v.webhookCa }}{{ if .existingSecret }}{{ $_ := set $found "webhooks" (dict "of" "webhookCa" "existingSecret" .existingSecret "caKey" .key "clientCert" false) }}{{ end }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "tickrail.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ .conf.tmpSizeLimit }}
{{- range $server, $tls := (include "tickrail.tlsOf" . | fromJson) }}
- name: tls-{{ $server }}
  secret:
    secretName: {{ required (printf "%s.existingSecret: the secret with the certificates" $tls.of) $tls.existingSecret }}
    defaultMode: 0440
    items:
      - {key: {{ $tls.caKey | quote }}, path: ca.crt}
      {{- if $tls.clientCert }}
      - {key: {{ $tls.certKey | quote }}, path: tls.crt}
      - {key: {{ $tls.keyKey | quote }}, path: tls.key}
      {{- end }}
{{- end }}
{{- with .conf.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tickrail.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- range $server, $_ := (include "tickrail.tlsOf" . | fromJson) }}
- {name: tls-{{ $server }}, mountPath: {{ include "tickrail.tlsDir" $server }}, readOnly: true}
{{- end }}
{{- with .conf.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
A pod without its probes and ports: what the deployments and the jobs have in common.
Takes: root, component, conf, urlSecret, urlKey.
*/}}
{{- define "tickrail.podCommon" -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: {{ .root.Values.serviceAccount.automountToken }}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .conf.podSecurityContext | nindent 2 }}
{{- with .conf.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .conf.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .conf.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .conf.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  {{- include "tickrail.volumes" . | nindent 2 }}
{{- end -}}

{{- define "tickrail.containerCommon" -}}
image: {{ include "tickrail.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml .conf.securityContext | nindent 2 }}
env:
  - name: TICKRAIL_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  {{- include "tickrail.settings" . | trim | nindent 2 }}
  {{- include "tickrail.secrets" . | nindent 2 }}
  {{- with include "tickrail.moreSecrets" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .conf.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .conf.resources | nindent 2 }}
volumeMounts:
  {{- include "tickrail.mounts" . | nindent 2 }}
{{- end -}}
