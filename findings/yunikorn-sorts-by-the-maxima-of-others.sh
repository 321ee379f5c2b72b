#!/usr/bin/env sh
# YuniKorn compares queues by the maxima of others while it sorts them, so that the order of the
# same three queues, no two of which are equal, is another one from call to call.
#
# Package: github.com/apache/yunikorn-core v1.8.0, pkg/scheduler/objects/sorters.go
#   (sortQueuesByPriorityAndFairness, sortQueuesByFairnessAndPriority), from Queue.sortQueues.
# Why a good guess fails: the documents say that fair queues go by what they use of their guarantee
#   or of their maximum, the smallest part first. The maxima are in a second list, by the place that
#   each queue had at first; the sort moves the queues and not the maxima. From the first move on a
#   queue's usage is divided by the maximum of the one that was in its place. The first places come
#   from a Go map. With two queues, with guarantees for all that is used, or with equal maxima,
#   nothing is to be seen.
# So whoever compares orders with YuniKorn's must compare two queues at a time.
#
# Output seen (the counts vary):
#   by their own maxima: a (20 of 100), c (12 of 40), b (5 of 10)
#   a c b: 767 of 1000
#   c b a: 233 of 1000
#
# Needs Go and the Go module proxy; runs nothing of this project. Exit code 1 if that has changed.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >go.mod <<'MOD'
module example.com/order

go 1.26.0

require github.com/apache/yunikorn-core v1.8.0
MOD

# Lets a function without a body compile, which is linked by its name: it is not exported.
: >linked.s

cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	_ "unsafe"

	"github.com/apache/yunikorn-core/pkg/common/configs"
	"github.com/apache/yunikorn-core/pkg/common/resources"
	"github.com/apache/yunikorn-core/pkg/common/security"
	"github.com/apache/yunikorn-core/pkg/log"
	"github.com/apache/yunikorn-core/pkg/scheduler/objects"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
)

//go:linkname sortQueues github.com/apache/yunikorn-core/pkg/scheduler/objects.(*Queue).sortQueues
func sortQueues(*objects.Queue) []*objects.Queue

const runs = 1000

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func cores(n int64) *resources.Resource {
	return resources.NewResourceFromMap(map[string]resources.Quantity{"vcore": resources.Quantity(n)})
}

func main() {
	log.UpdateLoggingConfig(map[string]string{"log.level": "ERROR"})
	root := must(objects.NewConfiguredQueue(configs.QueueConfig{
		Name: "root", Parent: true,
		Properties: map[string]string{configs.ApplicationSortPolicy: "fair"},
	}, nil, false, nil))
	root.SetMaxResource(cores(1000))
	for _, queue := range []struct {
		name      string
		max, used int64
	}{{"a", 100, 20}, {"b", 10, 5}, {"c", 40, 12}} {
		made := must(objects.NewConfiguredQueue(configs.QueueConfig{
			Name:      queue.name,
			Resources: configs.Resources{Max: map[string]string{"vcore": strconv.FormatInt(queue.max, 10) + "m"}},
		}, root, false, nil))
		made.IncAllocatedResource(cores(queue.used))
		app := objects.NewApplication(&si.AddApplicationRequest{
			ApplicationID: queue.name, QueueName: "root." + queue.name, PartitionName: "default",
		}, security.UserGroup{User: "user"}, nil, "rm")
		app.SetQueue(made)
		made.AddApplication(app)
		if err := app.AddAllocationAsk(objects.NewAllocationFromSI(&si.Allocation{
			AllocationKey: queue.name, ApplicationID: queue.name, PartitionName: "default",
			ResourcePerAlloc: cores(1).ToProto(),
		})); err != nil {
			panic(err)
		}
	}
	orders := map[string]int{}
	for range runs {
		order := ""
		for _, queue := range sortQueues(root) {
			order += queue.Name + " "
		}
		orders[order[:len(order)-1]]++
	}
	fmt.Println("by their own maxima: a (20 of 100), c (12 of 40), b (5 of 10)")
	seen := []string{}
	for order := range orders {
		seen = append(seen, order)
	}
	sort.Strings(seen)
	for _, order := range seen {
		fmt.Printf("%s: %d of %d\n", order, orders[order], runs)
	}
	if orders["c b a"] == 0 || orders["a c b"] == 0 {
		os.Exit(1)
	}
}
GO

export GOFLAGS=-mod=mod CGO_ENABLED=0
go build -o order . 2>build.log || { cat build.log >&2; exit 2; }
./order
