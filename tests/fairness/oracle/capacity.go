//go:build capacity

package main

import (
	"context"
	"fmt"
	"reflect"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling"
)

// elastic are the attributes of an ElasticQuota; nil: it has none.
type elastic struct {
	Min amounts `json:"min"`
	Max amounts `json:"max"`
}

// verdict is what the plugin says of a pod of a namespace.
type verdict struct {
	Admitted    bool   `json:"admitted"`
	Reason      string `json:"reason"`
	OverMax     bool   `json:"over_max"`      // with the pod
	OverMinWith bool   `json:"over_min_with"` // with the pod
	OverMin     bool   `json:"over_min"`
	OverSum     bool   `json:"over_sum"` // of all minimums, with the pod
}

//go:linkname newInfo sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling.newElasticQuotaInfo
func newInfo(namespace string, least, most, used corev1.ResourceList) *capacityscheduling.ElasticQuotaInfo

//go:linkname addPod sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling.(*ElasticQuotaInfo).addPodIfNotPresent
func addPod(*capacityscheduling.ElasticQuotaInfo, *corev1.Pod) error

//go:linkname requestOf sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling.computePodResourceRequest
func requestOf(*corev1.Pod) *framework.Resource

//go:linkname overMax sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling.(*ElasticQuotaInfo).usedOverMaxWith
func overMax(*capacityscheduling.ElasticQuotaInfo, *framework.Resource) bool

//go:linkname overMinWith sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling.(*ElasticQuotaInfo).usedOverMinWith
func overMinWith(*capacityscheduling.ElasticQuotaInfo, *framework.Resource) bool

//go:linkname overMin sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling.(*ElasticQuotaInfo).usedOverMin
func overMin(*capacityscheduling.ElasticQuotaInfo) bool

//go:linkname overSum sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling.ElasticQuotaInfos.aggregatedUsedOverMinWith
func overSum(capacityscheduling.ElasticQuotaInfos, framework.Resource) bool

// answer says of each namespace, which has one quota and is the path of a queue, if its head is
// admitted by the plugin's PreFilter, and what the comparisons behind that say.
func answer(f forest) (any, error) {
	infos := capacityscheduling.NewElasticQuotaInfos()
	for _, path := range f.paths() {
		var given elastic
		if err := f.Queues[path].attributes(&given); err != nil {
			return nil, err
		}
		infos[path] = newInfo(path, listed(given.Min), listed(given.Max), corev1.ResourceList{})
		for i, pod := range f.Queues[path].Pods {
			if err := addPod(infos[path], podOf(path, fmt.Sprint(i), pod)); err != nil {
				return nil, err
			}
		}
	}
	plugin := &capacityscheduling.CapacityScheduling{}
	set(plugin, "elasticQuotaInfos", infos)
	set(plugin, "fh", framework.Handle(noNodes{}))
	found := map[string]verdict{}
	for _, path := range f.paths() {
		head := f.Queues[path].Head
		if head == nil {
			continue
		}
		pod := podOf(path, "head", *head)
		wanted := requestOf(pod)
		_, status := plugin.PreFilter(context.Background(), framework.NewCycleState(), pod, nil)
		found[path] = verdict{
			Admitted:    status.IsSuccess(),
			Reason:      status.Message(),
			OverMax:     overMax(infos[path], wanted),
			OverMinWith: overMinWith(infos[path], wanted),
			OverMin:     overMin(infos[path]),
			OverSum:     overSum(infos, *wanted),
		}
	}
	return found, nil
}

// set sets a field of the plugin that its New sets from a running API server.
func set(plugin *capacityscheduling.CapacityScheduling, name string, value any) {
	field := reflect.ValueOf(plugin).Elem().FieldByName(name)
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

func listed(given amounts) corev1.ResourceList {
	if given == nil {
		return nil
	}
	return given.list()
}

func podOf(namespace, name string, of request) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: of.Resources.list()},
		}}},
	}
}

// noNodes is a framework whose nodes have no nominated pods, as there are none.
type noNodes struct{ framework.Handle }

func (noNodes) SnapshotSharedLister() framework.SharedLister { return noLister{} }

type noLister struct{ framework.SharedLister }

func (noLister) NodeInfos() framework.NodeInfoLister { return noInfos{} }

type noInfos struct{ framework.NodeInfoLister }

func (noInfos) List() ([]fwk.NodeInfo, error) { return nil, nil }
