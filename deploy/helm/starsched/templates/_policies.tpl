{{/* What the ConfigMap of policies holds, and whose pods are scheduled by it. */}}

{{/* The name of the profile that the chart makes. */}}
{{- define "starsched.schedulerName" -}}
{{- default (ternary "default-scheduler" "starsched" (eq "yes" (include "starsched.replaces" .))) .Values.schedulerName }}
{{- end }}

{{/* The data of the ConfigMap, as JSON. */}}
{{- define "starsched.policyData" -}}
{{- $data := deepCopy (default dict .Values.policyFiles) }}
{{- $configuration := deepCopy (default dict .Values.configuration) }}
{{- $runtime := deepCopy (default dict .Values.policyRuntime) }}
{{- /* 1. Without anything else, the examples, as kustomize has them. */}}
{{- if not (or $data .Values.packs $configuration) }}
{{- range $path, $content := .Files.Glob "files/policies/examples/*.star" }}
{{- $_ := set $data (base $path) (toString $content) }}
{{- end }}
{{- $configuration = .Files.Get "files/policies/examples/profile.yaml" | fromYaml }}
{{- range $configuration.profiles }}
{{- $_ := unset . "schedulerName" }}
{{- end }}
{{- end }}
{{- /* 2. The configuration, unless one of the files is it. */}}
{{- if not (include "starsched.hasConfiguration" .Values.policyFiles) }}
{{- $_ := set $configuration "apiVersion" "kubescheduler.config.k8s.io/v1" }}
{{- $_ := set $configuration "kind" "KubeSchedulerConfiguration" }}
{{- if not $configuration.profiles }}
{{- $_ := set $configuration "profiles" (list (include "starsched.madeProfile" . | fromJson)) }}
{{- end }}
{{- range $configuration.profiles }}
{{- if not .schedulerName }}
{{- $_ := set . "schedulerName" (include "starsched.schedulerName" $) }}
{{- end }}
{{- end }}
{{- range $pack := .Values.packs }}
{{- range include "starsched.documents" ($.Files.Get (printf "files/deploy/examples/%s/profile.yaml" $pack)) | fromJsonArray }}
{{- if eq .kind "PolicyRuntime" }}
{{- if not $.Values.policyRuntime }}
{{- $sources := concat (dig "facts" "sources" list $runtime) (dig "facts" "sources" list .) }}
{{- $runtime = mergeOverwrite . $runtime }}
{{- if $sources }}
{{- $_ := set $runtime.facts "sources" $sources }}
{{- end }}
{{- end }}
{{- else }}
{{- $theirs := first .profiles }}
{{- range $profile := $configuration.profiles }}
{{- include "starsched.addPack" (dict "profile" $profile "pack" $theirs) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $data "profile.yaml" (toYaml $configuration) }}
{{- end }}
{{- /* 3. The runtime's settings. */}}
{{- if $runtime }}
{{- $_ := set $runtime "apiVersion" "starsched.dev/v1" }}
{{- $_ := set $runtime "kind" "PolicyRuntime" }}
{{- $_ := set $data "runtime.yaml" (toYaml $runtime) }}
{{- end }}
{{- toJson $data }}
{{- end }}

{{/* "yes" if one of the files holds a KubeSchedulerConfiguration. */}}
{{- define "starsched.hasConfiguration" -}}
{{- if include "starsched.ofKind" (dict "files" . "kind" "KubeSchedulerConfiguration") }}yes{{ end }}
{{- end }}

{{/* What is no YAML among the files of a map, as a JSON list. */}}
{{- define "starsched.unreadable" -}}
{{- $found := list }}
{{- range $file, $text := . }}
{{- if regexMatch "\\.(yaml|yml|json)$" $file }}
{{- range include "starsched.documents" $text | fromJsonArray }}
{{- if and (hasKey . "Error") (not .kind) }}
{{- $found = append $found (printf "[%q]: %s" $file .Error) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* The first file of `files` that holds a document of `kind`; nothing if none does. */}}
{{- define "starsched.ofKind" -}}
{{- $found := "" }}
{{- range $file, $text := .files }}
{{- if and (regexMatch "\\.(yaml|yml|json)$" $file) (not (regexMatch "_test\\.(yaml|yml|json)$" $file)) }}
{{- range include "starsched.documents" $text | fromJsonArray }}
{{- if and (not $found) (eq (toString .kind) $.kind) }}
{{- $found = $file }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $found }}
{{- end }}

{{/* A profile that enables every policy of the files; one that takes a plugin's place is enabled as that is. */}}
{{- define "starsched.madeProfile" -}}
{{- $builtIn := splitList "\n" (.Files.Get "files/built-in.txt") }}
{{- $enabled := list }}
{{- range $file := keys (default dict .Values.policyFiles) | sortAlpha }}
{{- $stem := trimSuffix ".star" $file }}
{{- if and (hasSuffix ".star" $file) (not (hasSuffix "_test" $stem)) (not (has $stem $builtIn)) }}
{{- $enabled = append $enabled (dict "name" $stem) }}
{{- end }}
{{- end }}
{{- $profile := dict }}
{{- if $enabled }}
{{- $_ := set $profile "plugins" (dict "multiPoint" (dict "enabled" $enabled)) }}
{{- end }}
{{- toJson $profile }}
{{- end }}

{{/* Add to `profile` what `pack` enables, disables and configures; what the profile names already stays. */}}
{{- define "starsched.addPack" -}}
{{- $plugins := default dict .profile.plugins }}
{{- range $point, $theirs := default dict .pack.plugins }}
{{- $ours := default dict (get $plugins $point) }}
{{- range $which := list "enabled" "disabled" }}
{{- $entries := default list (get $ours $which) }}
{{- $names := list }}
{{- range $entries }}{{ $names = append $names .name }}{{ end }}
{{- range default list (get $theirs $which) }}
{{- if not (has .name $names) }}
{{- $entries = append $entries . }}
{{- end }}
{{- end }}
{{- if $entries }}
{{- $_ := set $ours $which $entries }}
{{- end }}
{{- end }}
{{- $_ := set $plugins $point $ours }}
{{- end }}
{{- $_ := set .profile "plugins" $plugins }}
{{- $configs := default list .profile.pluginConfig }}
{{- $names := list }}
{{- range $configs }}{{ $names = append $names .name }}{{ end }}
{{- range default list .pack.pluginConfig }}
{{- if not (has .name $names) }}
{{- $configs = append $configs . }}
{{- end }}
{{- end }}
{{- if $configs }}
{{- $_ := set .profile "pluginConfig" $configs }}
{{- end }}
{{- end }}

{{/* The `schedulerName`s of the configuration in the data of a ConfigMap, as a JSON list. */}}
{{- define "starsched.schedulerNames" -}}
{{- $names := list }}
{{- $file := include "starsched.ofKind" (dict "files" . "kind" "KubeSchedulerConfiguration") }}
{{- if $file }}
{{- range include "starsched.documents" (get . $file) | fromJsonArray }}
{{- if eq (toString .kind) "KubeSchedulerConfiguration" }}
{{- range default (list dict) .profiles }}
{{- $names = append $names (default "default-scheduler" .schedulerName) }}
{{- end }}
{{- end }}
{{- end }}
{{- else }}
{{- $names = list "default-scheduler" }}
{{- end }}
{{- toJson $names }}
{{- end }}
