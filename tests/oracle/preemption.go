package main

import (
	"context"
	"sort"
	"sync"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// victims remembers whom DefaultPreemption would evict on which node: that of the node it then
// nominates are the victims, those included that are being deleted already.
type victims struct {
	mu     sync.Mutex
	byNode map[string][]string
}

// registry returns kube-scheduler's own plugins, with DefaultPreemption listened to.
func (v *victims) registry() frameworkruntime.Registry {
	registry := plugins.NewInTreeRegistry()
	registry[defaultpreemption.Name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := defaultpreemption.New(ctx, args, handle,
			feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
		if err != nil {
			return nil, err
		}
		plugin.Evaluator.Interface = &listener{plugin.Evaluator.Interface, v}
		return plugin, nil
	}
	return registry
}

// on returns `namespace/name` of the node's victims, sorted.
func (v *victims) on(node string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byNode[node]
}

// reset forgets what was heard, and returns on how many nodes eviction would help.
func (v *victims) reset() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	count := len(v.byNode)
	v.byNode = nil
	return count
}

func (v *victims) set(node string, pods []*v1.Pod) {
	names := []string{}
	for _, pod := range pods {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	sort.Strings(names)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byNode == nil {
		v.byNode = map[string][]string{}
	}
	v.byNode[node] = names
}

// listener hears what is selected on every node.
type listener struct {
	preemption.Interface
	victims *victims
}

func (l *listener) SelectVictimsOnNode(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo,
	candidates []*preemption.DomainVictim, budgets []*policy.PodDisruptionBudget,
) ([]*v1.Pod, int, *fwk.Status) {
	name := node.Node().Name
	pods, violations, status := l.Interface.SelectVictimsOnNode(ctx, state, pod, node, candidates, budgets)
	if status.IsSuccess() {
		l.victims.set(name, pods)
	}
	return pods, violations, status
}
