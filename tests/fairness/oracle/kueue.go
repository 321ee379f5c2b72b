//go:build kueue

package main

import (
	"context"
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	cache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/resources"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/workload"
)

// All resources are of one flavour.
const flavor = "default"

// quotas are the attributes of a ClusterQueue, or of a Cohort if there are queues under it.
type quotas struct {
	Nominal        amounts `json:"nominal"`
	BorrowingLimit amounts `json:"borrowing_limit"`
	LendingLimit   amounts `json:"lending_limit"`
	Weight         *int64  `json:"weight"` // in thousandths
}

// standing is what Kueue says of a queue.
type standing struct {
	Share     float64 `json:"share"` // weighted; -1: infinite
	Borrows   bool    `json:"borrows"`
	Available amounts `json:"available,omitempty"` // of leaves
	Potential amounts `json:"potential,omitempty"`
	// Of a leaf with a head: the mode in which it is given a flavour, victims if it is Preempt and
	// they are asked for, and what the shares of the queues from the leaf up would be, and if they
	// would borrow of what it asks for.
	Mode     string     `json:"mode,omitempty"`
	Victims  []victim   `json:"victims,omitempty"`
	WithHead []withHead `json:"with_head,omitempty"`
}

type withHead struct {
	Share   float64 `json:"share"`
	Borrows bool    `json:"borrows"`
}

type victim struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

var (
	epoch  = time.Unix(1_700_000_000, 0)
	logger = logr.Discard()
)

// answer says how each queue stands, and in `order` in which order the heads go, tree by tree: the
// tournament of pkg/scheduler/fair_sharing_iterator.go over the exported parts of it, as nobody
// outside of the package may make its iterator.
func answer(f forest) (any, error) {
	ctx := ctrl.LoggerInto(context.Background(), logger)
	state := cache.New(nothing{}, cache.WithFairSharing(true))
	state.AddOrUpdateResourceFlavor(logger, &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: flavor},
	})
	names := map[string]bool{}
	for _, path := range f.paths() {
		var given quotas
		if err := f.Queues[path].attributes(&given); err != nil {
			return nil, err
		}
		for _, each := range []amounts{given.Nominal, given.BorrowingLimit, given.LendingLimit} {
			for name := range each {
				names[name] = true
			}
		}
		if err := add(ctx, state, f, path, given); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, path := range f.paths() {
		for _, pod := range f.Queues[path].Pods {
			if !state.AddOrUpdateWorkload(logger, running(path, pod)) {
				return nil, fmt.Errorf("%s: %s does not run", path, pod.Name)
			}
		}
	}
	snapshot, err := state.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	var strategies []config.PreemptionStrategy
	for _, name := range list(f.Args["strategies"]) {
		strategies = append(strategies, config.PreemptionStrategy(name))
	}
	preemptor := preemption.New(nothing{}, workload.Ordering{}, nil,
		&config.FairSharing{PreemptionStrategies: strategies}, false,
		clocktesting.NewFakeClock(epoch), nil, expectations.New(), nil)
	found := map[string]standing{}
	for _, path := range f.paths() {
		if !f.isLeaf(path) {
			cohort := snapshot.Cohort(kueue.CohortReference(path))
			found[path] = shown(cohort.DominantResourceShare())
			continue
		}
		leaf := snapshot.ClusterQueue(kueue.ClusterQueueReference(path))
		given := shown(leaf.DominantResourceShare())
		given.Available, given.Potential = amounts{}, amounts{}
		for name := range names {
			given.Available[name] = leaf.Available(of(name))
			given.Potential[name] = leaf.PotentialAvailable(of(name))
		}
		if head := f.Queues[path].Head; head != nil {
			taker := workload.NewInfo(waiting(*head))
			taker.ClusterQueue = kueue.ClusterQueueReference(path)
			assignment := flavorassigner.New(taker, leaf, snapshot.ResourceFlavors, true,
				preemption.NewOracle(preemptor, snapshot), nil).Assign(logger, nil)
			mode := assignment.RepresentativeMode()
			given.Mode = mode.String()
			if mode == flavorassigner.Preempt && f.Args["victims"] == true {
				given.Victims = victims(preemptor.GetTargets(logger, *taker, assignment, snapshot))
			}
			for at := path; at != ""; at = parent(at) {
				share := grown(f, snapshot, at, path)
				given.WithHead = append(given.WithHead, withHead{
					weighted(share), share.IsBorrowingOn(quota(head.Resources)),
				})
			}
		}
		found[path] = given
	}
	order := []string{}
	for _, path := range f.paths() {
		if parent(path) == "" {
			order = append(order, tournament(f, snapshot, path)...)
		}
	}
	return map[string]any{"queues": found, "order": order}, nil
}

func add(ctx context.Context, state *cache.Cache, f forest, path string, given quotas) error {
	weight := &kueue.FairSharing{}
	if given.Weight != nil {
		weight.Weight = resource.NewMilliQuantity(*given.Weight, resource.DecimalSI)
	}
	groups := groupsOf(given)
	above := kueue.CohortReference(parent(path))
	if !f.isLeaf(path) {
		return state.AddOrUpdateCohort(&kueue.Cohort{
			ObjectMeta: metav1.ObjectMeta{Name: path},
			Spec:       kueue.CohortSpec{ParentName: above, ResourceGroups: groups, FairSharing: weight},
		})
	}
	return state.AddClusterQueue(ctx, &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: path},
		Spec: kueue.ClusterQueueSpec{
			CohortName:        above,
			ResourceGroups:    groups,
			FairSharing:       weight,
			NamespaceSelector: &metav1.LabelSelector{},
			Preemption: &kueue.ClusterQueuePreemption{
				WithinClusterQueue:  kueue.PreemptionPolicyNever,
				ReclaimWithinCohort: kueue.PreemptionPolicyAny,
			},
		},
	})
}

func groupsOf(given quotas) []kueue.ResourceGroup {
	var quotas []kueue.ResourceQuota
	var covered []corev1.ResourceName
	for _, name := range sorted(given.Nominal) {
		quota := kueue.ResourceQuota{
			Name: corev1.ResourceName(name), NominalQuota: quantity(name, given.Nominal[name]),
		}
		if limit, ok := given.BorrowingLimit[name]; ok {
			quota.BorrowingLimit = ptr.To(quantity(name, limit))
		}
		if limit, ok := given.LendingLimit[name]; ok {
			quota.LendingLimit = ptr.To(quantity(name, limit))
		}
		covered, quotas = append(covered, quota.Name), append(quotas, quota)
	}
	if len(quotas) == 0 {
		return nil
	}
	return []kueue.ResourceGroup{{
		CoveredResources: covered,
		Flavors:          []kueue.FlavorQuotas{{Name: flavor, Resources: quotas}},
	}}
}

func running(path string, pod request) *kueue.Workload {
	made := waiting(pod)
	flavors := map[corev1.ResourceName]kueue.ResourceFlavorReference{}
	for name := range pod.Resources {
		flavors[corev1.ResourceName(name)] = flavor
	}
	since := metav1.NewTime(epoch.Add(time.Duration(pod.CreatedAt) * time.Second))
	made.Status = kueue.WorkloadStatus{
		Admission: &kueue.Admission{
			ClusterQueue: kueue.ClusterQueueReference(path),
			PodSetAssignments: []kueue.PodSetAssignment{{
				Name: kueue.DefaultPodSetName, Flavors: flavors, Count: ptr.To[int32](1),
				ResourceUsage: pod.Resources.list(),
			}},
		},
		Conditions: []metav1.Condition{
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: since},
			{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, LastTransitionTime: since},
		},
	}
	return made
}

func waiting(pod request) *kueue.Workload {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: pod.Resources.list()},
	}}}}
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, UID: types.UID(pod.Name),
			CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(pod.CreatedAt) * time.Second)),
		},
		Spec: kueue.WorkloadSpec{
			Priority: ptr.To(pod.Priority),
			PodSets:  []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1, Template: template}},
		},
	}
}

func victims(targets []*preemption.Target) []victim {
	var found []victim
	for _, target := range targets {
		found = append(found, victim{target.WorkloadInfo.Obj.Name, target.Reason})
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	return found
}

// tournament gives the paths of the leaves of the tree of root that have heads, in their order.
func tournament(f forest, snapshot *cache.Snapshot, root string) []string {
	left := map[string]bool{}
	for _, path := range f.paths() {
		if (path == root || len(path) > len(root) && path[:len(root)+1] == root+"/") &&
			f.isLeaf(path) && f.Queues[path].Head != nil {
			left[path] = true
		}
	}
	var order []string
	for len(left) > 0 {
		next := best(f, snapshot, root, left)
		order = append(order, next)
		delete(left, next)
	}
	return order
}

// best is the leaf that wins below path, or empty.
func best(f forest, snapshot *cache.Snapshot, path string, left map[string]bool) string {
	if f.isLeaf(path) {
		if left[path] {
			return path
		}
		return ""
	}
	winner := ""
	var winning cache.DRS
	for _, child := range f.paths() {
		if parent(child) != path {
			continue
		}
		candidate := best(f, snapshot, child, left)
		if candidate == "" {
			continue
		}
		share := grown(f, snapshot, child, candidate)
		if winner == "" || goesBefore(f, candidate, share, winner, winning) {
			winner, winning = candidate, share
		}
	}
	return winner
}

// grown is the share of the queue of path once the head of leaf, below it, is admitted.
func grown(f forest, snapshot *cache.Snapshot, path, leaf string) cache.DRS {
	queue := snapshot.ClusterQueue(kueue.ClusterQueueReference(leaf))
	revert := queue.SimulateUsageAddition(
		workload.Usage{Quota: quota(f.Queues[leaf].Head.Resources)})
	defer revert()
	if path == leaf {
		return queue.DominantResourceShare()
	}
	return snapshot.Cohort(kueue.CohortReference(path)).DominantResourceShare()
}

// goesBefore is entryComparer.less, with the gates as they are by default.
func goesBefore(f forest, a string, mine cache.DRS, b string, theirs cache.DRS) bool {
	one, other := f.Queues[a].Head, f.Queues[b].Head
	borrows := mine.IsBorrowingOn(quota(one.Resources))
	if borrows != theirs.IsBorrowingOn(quota(other.Resources)) {
		return !borrows
	}
	if compared := cache.CompareDRS(mine, theirs); compared != 0 {
		return compared < 0
	}
	if one.Priority != other.Priority {
		return one.Priority > other.Priority
	}
	return one.CreatedAt < other.CreatedAt
}

func shown(share cache.DRS) standing {
	return standing{Share: weighted(share), Borrows: share.IsBorrowing()}
}

// weighted is the share as JSON can have it: -1 if it is infinite.
func weighted(share cache.DRS) float64 {
	if found := share.PreciseWeightedShare(); !math.IsInf(found, 1) {
		return found
	}
	return -1
}

func of(name string) resources.FlavorResource {
	return resources.FlavorResource{Flavor: flavor, Resource: corev1.ResourceName(name)}
}

func quota(of_ amounts) resources.FlavorResourceQuantities {
	found := resources.FlavorResourceQuantities{}
	for name, amount := range of_ {
		found[of(name)] = amount
	}
	return found
}

func sorted(given amounts) []string {
	found := make([]string, 0, len(given))
	for name := range given {
		found = append(found, name)
	}
	sort.Strings(found)
	return found
}

func list(value any) []string {
	var found []string
	given, _ := value.([]any)
	for _, each := range given {
		found = append(found, each.(string))
	}
	return found
}

// nothing is an API server without objects: what the cache lists is what it was given.
type nothing struct{ client.Client }

func (nothing) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
