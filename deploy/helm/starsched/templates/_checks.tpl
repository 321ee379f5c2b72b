{{/* What contradicts itself or the cluster: all of it at once, each with its path. */}}

{{- define "starsched.checks" -}}
{{- $problems := list }}
{{- $values := .Values }}
{{- $policyFiles := default dict $values.policyFiles }}
{{- $configuration := default dict $values.configuration }}
{{- /* 1. Values that contradict each other. */}}
{{- if $values.existingConfigMap }}
{{- range $path := list "packs" "policyFiles" "configuration" "policyRuntime" "schedulerName" }}
{{- if get $values $path }}
{{- $problems = append $problems (printf "%s: want none with `existingConfigMap`, which holds the policies and their configuration" $path) }}
{{- end }}
{{- end }}
{{- end }}
{{- $configured := include "starsched.ofKind" (dict "files" $policyFiles "kind" "KubeSchedulerConfiguration") }}
{{- if $configured }}
{{- range $path := list "packs" "configuration" "schedulerName" }}
{{- if get $values $path }}
{{- $problems = append $problems (printf "%s: want none with a KubeSchedulerConfiguration in policyFiles[%q]" $path $configured) }}
{{- end }}
{{- end }}
{{- end }}
{{- $runtime := include "starsched.ofKind" (dict "files" $policyFiles "kind" "PolicyRuntime") }}
{{- if and $runtime (or $values.policyRuntime $values.packs) }}
{{- $problems = append $problems (printf "policyFiles[%q]: want no PolicyRuntime with `policyRuntime` or `packs`, which bring one" $runtime) }}
{{- end }}
{{- range $file := list "profile.yaml" "runtime.yaml" }}
{{- if and (hasKey $policyFiles $file) (ne $file $configured) (ne $file $runtime) }}
{{- $problems = append $problems (printf "policyFiles[%q]: the chart writes a file of this name itself, want another one" $file) }}
{{- end }}
{{- end }}
{{- range $problem := include "starsched.unreadable" $policyFiles | fromJsonArray }}
{{- $problems = append $problems (printf "policyFiles%s" $problem) }}
{{- end }}
{{- range $index, $pack := $values.packs }}
{{- if not ($.Files.Get (printf "files/deploy/examples/%s/profile.yaml" $pack)) }}
{{- $known := list }}
{{- range $path, $_ := $.Files.Glob "files/deploy/examples/*/profile.yaml" }}
{{- $known = append $known (base (dir $path)) }}
{{- end }}
{{- $problems = append $problems (printf "packs[%d]: no pack `%s`, want one of %s" $index $pack (join ", " $known)) }}
{{- end }}
{{- end }}
{{- $profiles := default list $configuration.profiles }}
{{- if and $profiles $values.schedulerName }}
{{- $problems = append $problems "schedulerName: want none with `configuration.profiles`, which have names of their own" }}
{{- end }}
{{- if gt (len $profiles) 1 }}
{{- range $index, $profile := $profiles }}
{{- if not $profile.schedulerName }}
{{- $problems = append $problems (printf "configuration.profiles[%d].schedulerName: want a name where there are several profiles" $index) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $flag := dict "leaderElect" "replicas" "resourceName" "leaderElection.name" "resourceNamespace" "leaderElection.namespace" }}
{{- if hasKey (default dict $configuration.leaderElection) $name }}
{{- $problems = append $problems (printf "configuration.leaderElection.%s: want none, the chart sets it by `%s`" $name $flag) }}
{{- end }}
{{- end }}
{{- if include "starsched.replaces" . }}
{{- range $name := list "name" "namespace" }}
{{- if get $values.leaderElection $name }}
{{- $problems = append $problems (printf "leaderElection.%s: want none with mode `%s`, which uses kube-scheduler's lease so that only one of the two schedules" $name $values.mode) }}
{{- end }}
{{- end }}
{{- else }}
{{- $lease := printf "%s/%s" (include "starsched.leaseNamespace" .) (include "starsched.leaseName" .) }}
{{- if eq $lease "kube-system/kube-scheduler" }}
{{- $problems = append $problems "leaderElection.name: this is kube-scheduler's lease, want another one or mode `replace`" }}
{{- end }}
{{- end }}
{{- if include "starsched.isStaticPod" . }}
{{- range $option := list "podMonitor" "webhook" "preflight" }}
{{- if (get $values $option).enabled }}
{{- $problems = append $problems (printf "%s.enabled: want none with mode `static-pod`, in which the chart makes no pods" $option) }}
{{- end }}
{{- end }}
{{- else if and $values.podDisruptionBudget.enabled (ge (int $values.podDisruptionBudget.minAvailable) (int $values.replicas)) }}
{{- $problems = append $problems (printf "podDisruptionBudget.minAvailable: want less than `replicas`, which is %d, or `podDisruptionBudget.enabled=false`: no drain could ever go on" (int $values.replicas)) }}
{{- end }}
{{- if and (not $values.serviceAccount.create) (not $values.serviceAccount.name) }}
{{- $problems = append $problems "serviceAccount.name: want the name of an account, because `serviceAccount.create` is false" }}
{{- end }}
{{- if and $values.podMonitor.enabled (not $values.rbac.create) }}
{{- $problems = append $problems "podMonitor.enabled: want `rbac.create` too, which makes the role that metrics are read by" }}
{{- end }}
{{- if not $values.webhook.enabled }}
{{- range $name, $isSet := dict "selfMade" $values.webhook.selfMade "certManager.enabled" $values.webhook.certManager.enabled }}
{{- if $isSet }}
{{- $problems = append $problems (printf "webhook.%s: want `webhook.enabled` too, without which there is no webhook" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (include "starsched.registersItself" .) (or $values.webhook.certManager.enabled $values.webhook.key) }}
{{- $problems = append $problems "webhook.selfMade: want none with `webhook.certManager.enabled` or `webhook.key`: the scheduler makes both" }}
{{- end }}
{{- if and $values.webhook.enabled (not $values.webhook.selfMade) }}
{{- range $index, $argument := $values.extraArgs }}
{{- if regexMatch "^--tls-(cert|private-key)-file(=|$)" $argument }}
{{- $problems = append $problems (printf "extraArgs[%d]: want none with `webhook.enabled`, whose certificate the chart brings" $index) }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq (int $values.securePort) (int $values.localPort) }}
{{- $problems = append $problems "localPort: want another port than `securePort`" }}
{{- end }}
{{- /* 2. What is in the cluster; without one, every answer is empty. */}}
{{- $files := dict }}
{{- $isInCluster := and $values.lookups (lookup "v1" "Namespace" "" "kube-system") }}
{{- if not $values.existingConfigMap }}
{{- if not $problems }}
{{- $files = include "starsched.policyData" . | fromJson }}
{{- end }}
{{- else if $isInCluster }}
{{- with lookup "v1" "ConfigMap" .Release.Namespace $values.existingConfigMap }}
{{- $files = default dict .data }}
{{- range $problem := include "starsched.unreadable" $files | fromJsonArray }}
{{- $problems = append $problems (printf "existingConfigMap: data%s" $problem) }}
{{- end }}
{{- else }}
{{- $problems = append $problems (printf "existingConfigMap: no ConfigMap `%s` in namespace `%s`" $values.existingConfigMap .Release.Namespace) }}
{{- end }}
{{- end }}
{{- /* 3. Whose pods are scheduled. */}}
{{- if and (not $problems) (or $isInCluster (not $values.existingConfigMap)) }}
{{- $where := "schedulerName" }}
{{- if $profiles }}
{{- $where = "configuration.profiles" }}
{{- else if $configured }}
{{- $where = printf "policyFiles[%q]" $configured }}
{{- else if $values.existingConfigMap }}
{{- $where = "existingConfigMap" }}
{{- end }}
{{- $names := include "starsched.schedulerNames" $files | fromJsonArray }}
{{- $takesAll := has "default-scheduler" $names }}
{{- if and $takesAll (eq $values.mode "beside") }}
{{- $problems = append $problems (printf "%s: `default-scheduler` is kube-scheduler's, want another name, or mode `replace`" $where) }}
{{- else if and (not $takesAll) (include "starsched.replaces" .) }}
{{- $problems = append $problems (printf "%s: mode `%s` wants a profile `default-scheduler`, got %s" $where $values.mode (join ", " $names)) }}
{{- end }}
{{- if $isInCluster }}
{{- range include "starsched.others" . | fromJsonArray }}
{{- $other := . }}
{{- range $name := $names }}
{{- if has $name $other.names }}
{{- $problems = append $problems (printf "%s: `%s` is taken by the Deployment `%s` of namespace `%s`, want another name: two schedulers would place the same pods" $where $name $other.name $other.namespace) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if $problems }}
{{- fail (printf "\n%s" (join "\n" (uniq $problems))) }}
{{- end }}
{{- end }}

{{/* The other starscheds of the cluster, however they were installed: name, namespace and `schedulerName`s of each, as a JSON list. */}}
{{- define "starsched.others" -}}
{{- $found := list }}
{{- range (lookup "apps/v1" "Deployment" "" "").items }}
{{- $isOurs := and (eq .metadata.namespace $.Release.Namespace) (eq .metadata.name (include "starsched.fullname" $)) }}
{{- if and (eq (dig "metadata" "labels" "app.kubernetes.io/name" "" .) "starsched") (not $isOurs) }}
{{- $deployment := . }}
{{- range .spec.template.spec.containers }}
{{- range .args }}
{{- if hasPrefix "--policies=configmap:" . }}
{{- $source := splitList "/" (trimPrefix "--policies=configmap:" .) }}
{{- $map := lookup "v1" "ConfigMap" (first $source) (last $source) }}
{{- $names := include "starsched.schedulerNames" (default dict $map.data) | fromJsonArray }}
{{- $found = append $found (dict "name" $deployment.metadata.name "namespace" $deployment.metadata.namespace "names" $names) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}
