#!/usr/bin/env sh
# A queue of YuniKorn with a max of 0 cores is not closed: it is not limited at all.
#
# Package: github.com/apache/yunikorn-core v1.8.0, pkg/scheduler/objects/queue.go (setResources),
#   with a configuration that pkg/common/configs has validated.
# Why a good guess fails: a max is the most that a queue may use, and beside another resource a 0 is
#   that: {vcore: 0, memory: 10} holds every core. A max in which all that is named is 0 is dropped
#   ("cannot set zero max resources", at debug level), and the queue has that of the one above it.
#
# Output seen:
#   max {vcore: 0}             may use map[memory:100 vcore:100000]
#   max {vcore: 0, memory: 10} may use map[memory:10 vcore:0]
#
# Needs Go and the Go module proxy; runs nothing of this project. Exit code 1 if that has changed.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >go.mod <<'MOD'
module example.com/zero

go 1.26.0

require github.com/apache/yunikorn-core v1.8.0
MOD

cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/apache/yunikorn-core/pkg/common/configs"
	"github.com/apache/yunikorn-core/pkg/common/resources"
	"github.com/apache/yunikorn-core/pkg/log"
	"github.com/apache/yunikorn-core/pkg/scheduler/objects"
)

const file = `
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: first
            resources: {max: {vcore: 0}}
          - name: second
            resources: {max: {vcore: 0, memory: 10}}
`

func main() {
	log.UpdateLoggingConfig(map[string]string{"log.level": "ERROR"})
	read, err := configs.LoadSchedulerConfigFromByteArray([]byte(file))
	if err != nil {
		panic(err)
	}
	above := read.Partitions[0].Queues[0]
	root, err := objects.NewConfiguredQueue(
		configs.QueueConfig{Name: "root", Parent: true}, nil, false, nil)
	if err != nil {
		panic(err)
	}
	root.SetMaxResource(resources.NewResourceFromMap(
		map[string]resources.Quantity{"vcore": 100_000, "memory": 100}))
	said := []string{"max {vcore: 0}            ", "max {vcore: 0, memory: 10}"}
	want := []string{"map[memory:100 vcore:100000]", "map[memory:10 vcore:0]"}
	for i, each := range above.Queues {
		queue, err := objects.NewConfiguredQueue(each, root, false, nil)
		if err != nil {
			panic(err)
		}
		got := queue.GetMaxResource().String()
		fmt.Println(said[i], "may use", got)
		if got != want[i] {
			os.Exit(1)
		}
	}
}
GO

export GOFLAGS=-mod=mod CGO_ENABLED=0
go build -o zero . 2>build.log || { cat build.log >&2; exit 2; }
./zero
