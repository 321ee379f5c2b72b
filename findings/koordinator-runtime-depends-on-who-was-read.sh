#!/usr/bin/env sh
# Koordinator's runtime of a quota depends on which quotas were read before it.
#
# Package: github.com/koordinator-sh/koordinator v1.8.0, pkg/scheduler/plugins/elasticquota/core
#   (GroupQuotaManager.RefreshRuntime, ScaleMinQuotaManager.getScaledMinQuota).
# Why a good guess fails: the runtimes of one level are worked out together, from min, max, weight,
#   requests and what there is. But where mins are scaled (enableMinQuotaScale, on by default), that
#   is done for the quota that is read and those above it alone; its siblings count with the min
#   that they were scaled to when they were read last. After nodes came or went, the first one that
#   is read can get what is not its own, until all of them have been read.
# So one who compares runtimes with Koordinator's must read all quotas until nothing changes.
#
# Output seen, for two equal quotas with a min of 80 GPUs that both ask for all:
#   of 100:           a 50, b 50
#   of 200, at first: a 115
#   of 200, then:     b 100, a 100
#
# Needs Go and the Go module proxy (some minutes); runs nothing of this project. Exit code 1 if that
# has changed.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# It builds with the replacements of its own go.mod only.
module=github.com/koordinator-sh/koordinator
printf 'module example.com/runtime\n\ngo 1.26.0\n' >go.mod
folder=$(GOFLAGS=-mod=mod go mod download -json $module@v1.8.0 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
{
    printf 'module example.com/runtime\n\ngo 1.26.0\n\nrequire %s v1.8.0\n\n' $module
    sed -n '/^replace/,$p' "$folder/go.mod"
} >go.mod

cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/koordinator-sh/koordinator/apis/thirdparty/scheduler-plugins/pkg/apis/scheduling/v1alpha1"
	"github.com/koordinator-sh/koordinator/pkg/scheduler/plugins/elasticquota/core"
)

func gpus(n int64) corev1.ResourceList {
	return corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(n, resource.DecimalSI)}
}

func main() {
	manager := core.NewGroupQuotaManager("", true, nil, nil) // enableMinQuotaScale, as by default
	manager.UpdateClusterTotalResource(gpus(100))
	for _, name := range []string{"a", "b"} {
		err := manager.UpdateQuota(&v1alpha1.ElasticQuota{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.ElasticQuotaSpec{Min: gpus(80), Max: gpus(400)},
		})
		if err != nil {
			panic(err)
		}
		manager.OnPodAdd(name, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Resources: corev1.ResourceRequirements{Requests: gpus(400)},
			}}},
		})
	}
	read := func(names ...string) string {
		found := []string{}
		for _, name := range names {
			runtime := manager.RefreshRuntime(name)["nvidia.com/gpu"]
			found = append(found, name+" "+runtime.String())
		}
		return strings.Join(found, ", ")
	}
	read("a", "b")
	before := read("a", "b")
	manager.UpdateClusterTotalResource(gpus(100)) // nodes come
	grown, again := read("a"), read("b", "a")
	fmt.Println("of 100:          ", before)
	fmt.Println("of 200, at first:", grown)
	fmt.Println("of 200, then:    ", again)
	if before != "a 50, b 50" || grown != "a 115" || again != "b 100, a 100" {
		os.Exit(1)
	}
}
GO

export GOFLAGS=-mod=mod CGO_ENABLED=0
go build -o runtime . 2>build.log || { cat build.log >&2; exit 2; }
./runtime
