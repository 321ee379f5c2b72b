//go:build koordinator

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/koordinator-sh/koordinator/apis/extension"
	"github.com/koordinator-sh/koordinator/apis/thirdparty/scheduler-plugins/pkg/apis/scheduling/v1alpha1"
	"github.com/koordinator-sh/koordinator/pkg/scheduler/plugins/elasticquota/core"
)

// elastic are the attributes of an ElasticQuota.
type elastic struct {
	Min          amounts `json:"min"`
	Max          amounts `json:"max"`
	SharedWeight amounts `json:"shared_weight"` // nil: the max
	Lends        *bool   `json:"lends"`         // nil: true
}

// Scaled minimums reach the calculator of a level one queue at a time, as each is asked about.
const mostRounds = 20

// answer says the runtime of each queue, once every queue has been asked about often enough for it to
// change no more, and as `first` what the first round of that said.
func answer(f forest) (any, error) {
	scaled, _ := f.Args["scale_min"].(bool)
	manager := core.NewGroupQuotaManager("", scaled, nil, nil)
	manager.UpdateClusterTotalResource(f.Total.list())
	for _, path := range f.paths() {
		quota, err := quotaOf(f, path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := manager.UpdateQuota(quota); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, path := range f.paths() {
		if f.isLeaf(path) {
			visit(manager, path)
		}
	}
	for _, path := range f.paths() {
		pods := f.Queues[path].Pods
		if head := f.Queues[path].Head; head != nil {
			pods = append(pods, *head)
		}
		for i, pod := range pods {
			manager.OnPodAdd(path, podOf(path+"-"+strconv.Itoa(i), pod.Resources.list()))
		}
	}
	var first, before map[string]amounts
	for range mostRounds {
		now := map[string]amounts{}
		for _, path := range f.paths() {
			now[path] = plain(manager.RefreshRuntime(path))
		}
		if first == nil {
			first = now
		}
		if maps.EqualFunc(now, before, maps.Equal[amounts, amounts]) {
			return map[string]any{"runtime": now, "first": first}, nil
		}
		before = now
	}
	return nil, errors.New("the runtimes do not settle")
}

// visit has a pod come and go: what a quota that lends nothing does not lend counts above it only
// from its first pod on (doUpdateOneGroupMinQuotaNoLock passes it to those above, not to the level).
func visit(manager *core.GroupQuotaManager, path string) {
	asked := amounts{}
	for name := range manager.GetQuotaInfoByName(path).GetMax() {
		asked[string(name)] = 1
	}
	pod := podOf(path+"-visit", asked.list())
	manager.OnPodAdd(path, pod)
	manager.OnPodDelete(path, pod)
}

func podOf(name string, requests corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: requests},
		}}},
	}
}

func quotaOf(f forest, path string) (*v1alpha1.ElasticQuota, error) {
	var given elastic
	if err := f.Queues[path].attributes(&given); err != nil {
		return nil, err
	}
	made := &v1alpha1.ElasticQuota{
		ObjectMeta: metav1.ObjectMeta{
			Name: path,
			Labels: map[string]string{
				extension.LabelQuotaParent:   parent(path),
				extension.LabelQuotaIsParent: strconv.FormatBool(!f.isLeaf(path)),
			},
			Annotations: map[string]string{},
		},
		Spec: v1alpha1.ElasticQuotaSpec{Min: given.Min.list(), Max: given.Max.list()},
	}
	if given.Lends != nil {
		made.Labels[extension.LabelAllowLentResource] = strconv.FormatBool(*given.Lends)
	}
	if given.SharedWeight != nil {
		weight, err := json.Marshal(given.SharedWeight.list())
		if err != nil {
			return nil, err
		}
		made.Annotations[extension.AnnotationSharedWeight] = string(weight)
	}
	return made, nil
}
