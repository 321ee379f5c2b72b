//go:build yunikorn

package main

import (
	"fmt"
	"strconv"
	"strings"
	_ "unsafe" // for go:linkname

	"github.com/apache/yunikorn-core/pkg/common/configs"
	"github.com/apache/yunikorn-core/pkg/common/resources"
	"github.com/apache/yunikorn-core/pkg/common/security"
	"github.com/apache/yunikorn-core/pkg/log"
	"github.com/apache/yunikorn-core/pkg/scheduler/objects"
	"github.com/apache/yunikorn-core/pkg/scheduler/policies"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
)

func init() {
	log.UpdateLoggingConfig(map[string]string{"log.level": "ERROR"})
}

// limits are the attributes of a queue. A resource that is not named is not limited.
type limits struct {
	Guaranteed     amounts `json:"guaranteed"`
	Max            amounts `json:"max"`
	Priority       int     `json:"priority"` // the offset
	PriorityPolicy string  `json:"priority_policy"`
}

// pair says which of two queues goes first: -1 the first, 1 the second, 0 neither.
type pair struct {
	First int    `json:"first"`
	By    string `json:"by"` // share, priority, or pending: one has more of everything
}

//go:linkname sortQueue github.com/apache/yunikorn-core/pkg/scheduler/objects.sortQueue
func sortQueue([]*objects.Queue, []*resources.Resource, policies.SortPolicy, bool)

//go:linkname headRoom github.com/apache/yunikorn-core/pkg/scheduler/objects.(*Queue).getMaxHeadRoom
func headRoom(*objects.Queue) *resources.Resource

// answer says in `admits` of each leaf with a head if it fits into what the queues on the way up may
// still use, as an application is asked before nodes are; the cluster aside.
//
// In `pairs` it compares the queues under each that have something pending, two by two, "a b" once
// and not "b a" too. With more than two, sortQueue compares with the maximum that the queue had that
// was in the same place before it moved any, so that the outcome goes by the order of a Go map.
func answer(f forest) (any, error) {
	root, err := objects.NewConfiguredQueue(
		configs.QueueConfig{Name: "root", Parent: true}, nil, false, nil)
	if err != nil {
		return nil, err
	}
	root.SetMaxResource(resourceOf(f.Total))
	made := map[string]*objects.Queue{"": root}
	for _, path := range f.paths() {
		var given limits
		if err := f.Queues[path].attributes(&given); err != nil {
			return nil, err
		}
		properties := map[string]string{configs.PriorityOffset: strconv.Itoa(given.Priority)}
		if given.PriorityPolicy != "" {
			properties[configs.PriorityPolicy] = given.PriorityPolicy
		}
		made[path], err = objects.NewConfiguredQueue(configs.QueueConfig{
			Name:       path[strings.LastIndex(path, "/")+1:],
			Parent:     !f.isLeaf(path),
			Resources:  configs.Resources{Guaranteed: texts(given.Guaranteed), Max: texts(given.Max)},
			Properties: properties,
		}, made[parent(path)], false, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, path := range f.paths() {
		for _, pod := range f.Queues[path].Pods {
			made[path].IncAllocatedResource(resourceOf(pod.Resources))
		}
		if head := f.Queues[path].Head; head != nil {
			if err := ask(made[path], path, *head); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	priorityFirst, _ := f.Args["priority_first"].(bool)
	found := map[string]pair{}
	admits := map[string]bool{}
	paths := f.paths()
	for i, one := range paths {
		if head := f.Queues[one].Head; head != nil {
			admits[one] = headRoom(made[one]).FitInMaxUndef(resourceOf(head.Resources))
		}
		for _, other := range paths[i+1:] {
			if parent(one) == parent(other) && isPending(made[one]) && isPending(made[other]) {
				found[one+" "+other] = compare(made[one], made[other], priorityFirst)
			}
		}
	}
	return map[string]any{"pairs": found, "admits": admits}, nil
}

// ask has an application of the queue ask for what a pod requests.
func ask(queue *objects.Queue, path string, pod request) error {
	application := objects.NewApplication(&si.AddApplicationRequest{
		ApplicationID: path, QueueName: path, PartitionName: "default",
	}, security.UserGroup{User: "user"}, nil, "rm")
	application.SetQueue(queue)
	queue.AddApplication(application)
	return application.AddAllocationAsk(objects.NewAllocationFromSI(&si.Allocation{
		AllocationKey: path, ApplicationID: path, PartitionName: "default",
		ResourcePerAlloc: resourceOf(pod.Resources).ToProto(), Priority: pod.Priority,
	}))
}

func isPending(queue *objects.Queue) bool {
	return resources.StrictlyGreaterThanZero(queue.GetPendingResource())
}

func compare(one, other *objects.Queue, priorityFirst bool) pair {
	found := pair{}
	switch {
	case !isBehind(other, one, priorityFirst):
		found.First = 1
	case !isBehind(one, other, priorityFirst):
		found.First = -1
	}
	share := resources.CompUsageRatioSeparately(
		one.GetAllocatedResource(), one.GetGuaranteedResource(), one.GetFairMaxResource(),
		other.GetAllocatedResource(), other.GetGuaranteedResource(), other.GetFairMaxResource())
	differ := one.GetCurrentPriority() != other.GetCurrentPriority()
	switch {
	case differ && (priorityFirst || share == 0):
		found.By = "priority"
	case share != 0:
		found.By = "share"
	case found.First != 0:
		found.By = "pending"
	}
	return found
}

// isBehind says if queue stays behind first, which was before it: sorting is stable.
func isBehind(queue, first *objects.Queue, priorityFirst bool) bool {
	sorted := []*objects.Queue{first, queue}
	limits := []*resources.Resource{first.GetFairMaxResource(), queue.GetFairMaxResource()}
	sortQueue(sorted, limits, policies.FairSortPolicy, priorityFirst)
	return sorted[0] == first
}

func resourceOf(given amounts) *resources.Resource {
	found := resources.NewResource()
	for name, amount := range given {
		found.Resources[nameOf(name)] = resources.Quantity(amount)
	}
	return found
}

// texts are amounts as a queues.yaml has them.
func texts(given amounts) map[string]string {
	found := map[string]string{}
	for name, amount := range given {
		text := strconv.FormatInt(amount, 10)
		if name == "cpu" {
			text += "m"
		}
		found[nameOf(name)] = text
	}
	return found
}

func nameOf(name string) string {
	if name == "cpu" {
		return "vcore"
	}
	return name
}
