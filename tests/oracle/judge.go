package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// rejection is who rejected, with which code, for which reasons.
type rejection struct {
	Plugin  string   `json:"plugin"`
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
}

// says reports whether another rejection is the same; the order of reasons is that of a hash map.
func (r rejection) says(other rejection) bool {
	return r.Plugin == other.Plugin && r.Code == other.Code &&
		slices.Equal(slices.Sorted(slices.Values(r.Reasons)), slices.Sorted(slices.Values(other.Reasons)))
}

// answer is what the plugins say of one pod; README.md of tests/data/conformance describes it.
type answer struct {
	Pod            string                      `json:"pod"`
	PreFilter      *rejection                  `json:"preFilter,omitempty"`
	PreFilterNodes *[]string                   `json:"preFilterNodes,omitempty"`
	Rejected       map[string]rejection        `json:"rejected"`
	Scores         map[string]map[string]int64 `json:"scores,omitempty"`
	Total          map[string]int64            `json:"total,omitempty"`
	Best           []string                    `json:"best,omitempty"`
	PostFilter     string                      `json:"postFilter,omitempty"`
	Preemption     map[string][]string         `json:"preemption,omitempty"`
	Chance         *chance                     `json:"chance,omitempty"`
	// Error is the failure that ended the cycle: the pod is tried again, nothing was decided.
	Error string `json:"error,omitempty"`
}

// chance is what else was seen where kube-scheduler takes the first of a hash map. Every entry
// stands for itself: what happens on one node does not depend on what happens on another.
type chance struct {
	Rejected   map[string][]rejection        `json:"rejected,omitempty"`
	Scores     map[string]map[string][]int64 `json:"scores,omitempty"`
	PostFilter []string                      `json:"postFilter,omitempty"`
	Preemption map[string][][]string         `json:"preemption,omitempty"`
}

// answer judges every incoming pod alone in the scenario's cluster.
func (s *scenario) answer(client kubernetes.Interface) ([]*answer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := newWorld(ctx, s, client)
	if err != nil {
		return nil, err
	}
	answers := []*answer{}
	for _, pod := range s.incoming {
		name := pod.Spec.SchedulerName
		if name == "" {
			name = v1.DefaultSchedulerName
		}
		plugins, ok := w.profiles[name]
		if !ok {
			return nil, fmt.Errorf("no profile has the schedulerName of pod %s/%s, %q", pod.Namespace, pod.Name, name)
		}
		first := w.judge(ctx, plugins, pod, s.runs)
		for range s.repeats - 1 {
			if err := first.addChance(w.judge(ctx, plugins, pod, min(s.runs, 1))); err != nil {
				return nil, err
			}
		}
		answers = append(answers, first)
	}
	return answers, nil
}

// judge is one scheduling cycle with every node filtered and scored.
func (w *world) judge(ctx context.Context, plugins framework.Framework, pod *v1.Pod, runs int) *answer {
	result := &answer{Pod: pod.Namespace + "/" + pod.Name, Rejected: map[string]rejection{}}
	nodes, err := w.snapshot.ListNodesInPlacement()
	if err != nil {
		return result.failed(err)
	}
	state := framework.NewCycleState()
	statuses := framework.NewDefaultNodeToStatus()
	// 1. What is said of all nodes at once.
	allowed, status, narrowing := plugins.RunPreFilterPlugins(ctx, state, pod)
	if allowed != nil && !allowed.AllNodes() {
		names := sets.List(allowed.NodeNames)
		result.PreFilterNodes = &names
	}
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return result.failed(status.AsError())
		}
		rejected := rejectionOf(status)
		result.PreFilter = &rejected
		statuses.SetAbsentNodesStatus(status)
		return w.postFilter(ctx, plugins, state, pod, statuses, runs, result)
	}
	// 2. Node by node.
	if result.PreFilterNodes != nil {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(node fwk.NodeInfo) bool {
			return !allowed.NodeNames.Has(node.Node().Name)
		})
		statuses.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
			fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(narrowing))))
	}
	feasible := []fwk.NodeInfo{}
	for _, node := range nodes {
		status := plugins.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
		switch {
		case status.IsSuccess():
			feasible = append(feasible, node)
		case status.IsRejected():
			result.Rejected[node.Node().Name] = rejectionOf(status)
			statuses.Set(node.Node().Name, status)
		default:
			return result.failed(status.AsError())
		}
	}
	if len(feasible) == 0 {
		return w.postFilter(ctx, plugins, state, pod, statuses, runs, result)
	}
	// 3. The feasible ones against each other.
	if status := plugins.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		return result.failed(status.AsError())
	}
	scores, status := plugins.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		return result.failed(status.AsError())
	}
	result.setScores(scores)
	return result
}

// postFilter asks what would make room for the pod, as often as the scenario wants.
func (w *world) postFilter(
	ctx context.Context, plugins framework.Framework, state fwk.CycleState, pod *v1.Pod,
	statuses *framework.NodeToStatus, runs int, result *answer,
) *answer {
	if runs == 0 || !plugins.HasPostFilterPlugins() {
		return result
	}
	w.victims.reset()
	for range runs {
		nominated, status := plugins.RunPostFilterPlugins(ctx, state, pod, statuses)
		switch {
		case status.IsSuccess() && nominated != nil && nominated.NominatingInfo != nil && nominated.NominatedNodeName != "":
			result.addPreemption(nominated.NominatedNodeName, w.victims.on(nominated.NominatedNodeName))
		default:
			// An error is only logged; its text becomes part of the pod's condition like any other.
			result.PostFilter = status.Message()
		}
		if w.victims.reset() <= 1 && w.budgets <= 1 {
			break // nothing is left to chance
		}
	}
	return result
}

func (a *answer) setScores(scores []fwk.NodePluginScores) {
	a.Scores = map[string]map[string]int64{}
	a.Total = map[string]int64{}
	best := scores[0].TotalScore
	for _, node := range scores {
		row := map[string]int64{}
		for _, score := range node.Scores {
			row[score.Name] = score.Score
		}
		a.Scores[node.Name] = row
		a.Total[node.Name] = node.TotalScore
		best = max(best, node.TotalScore)
	}
	for name, total := range a.Total {
		if total == best {
			a.Best = append(a.Best, name)
		}
	}
	sort.Strings(a.Best)
}

func (a *answer) addPreemption(node string, victims []string) {
	if a.Preemption == nil {
		a.Preemption = map[string][]string{}
	}
	first, ok := a.Preemption[node]
	if !ok {
		a.Preemption[node] = victims
		return
	}
	if slices.Equal(first, victims) {
		return
	}
	others := &a.chance().Preemption
	if *others == nil {
		*others = map[string][][]string{}
	}
	known := func(seen []string) bool { return slices.Equal(seen, victims) }
	if !slices.ContainsFunc((*others)[node], known) {
		(*others)[node] = append((*others)[node], victims)
	}
}

// addChance adds what another answer to the same question says otherwise. Of the nodes' reasons and
// scores that is, and of what a post-filter says of nodes; anything else is never left to chance,
// and an error. Victims have runs of their own.
func (a *answer) addChance(other *answer) error {
	if a.Error != other.Error || (a.PreFilter == nil) != (other.PreFilter == nil) ||
		!reflect.DeepEqual(a.PreFilterNodes, other.PreFilterNodes) {
		return fmt.Errorf("pod %s: two answers to the same question: %+v and %+v", a.Pod, a, other)
	}
	for node, got := range other.Rejected {
		want, ok := a.Rejected[node]
		if !ok {
			return fmt.Errorf("pod %s: node %s is rejected by chance", a.Pod, node)
		}
		if want.says(got) {
			continue
		}
		others := &a.chance().Rejected
		if *others == nil {
			*others = map[string][]rejection{}
		}
		if !slices.ContainsFunc((*others)[node], got.says) {
			(*others)[node] = append((*others)[node], got)
		}
	}
	for node, row := range other.Scores {
		for plugin, got := range row {
			if want, ok := a.Scores[node][plugin]; !ok {
				return fmt.Errorf("pod %s: %s scores node %s by chance", a.Pod, plugin, node)
			} else if want == got {
				continue
			}
			others := &a.chance().Scores
			if *others == nil {
				*others = map[string]map[string][]int64{}
			}
			if (*others)[node] == nil {
				(*others)[node] = map[string][]int64{}
			}
			if !slices.Contains((*others)[node][plugin], got) {
				(*others)[node][plugin] = append((*others)[node][plugin], got)
			}
		}
	}
	if got := other.PostFilter; got != "" && got != a.PostFilter {
		if others := &a.chance().PostFilter; !slices.Contains(*others, got) {
			*others = append(*others, got)
		}
	}
	return nil
}

func (a *answer) chance() *chance {
	if a.Chance == nil {
		a.Chance = &chance{}
	}
	return a.Chance
}

func (a *answer) failed(err error) *answer {
	return &answer{Pod: a.Pod, Rejected: map[string]rejection{}, Error: err.Error()}
}

func rejectionOf(status *fwk.Status) rejection {
	return rejection{status.Plugin(), status.Code().String(), status.Reasons()}
}
