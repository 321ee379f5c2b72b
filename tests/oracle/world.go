package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	scheduling "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// world is a scenario's cluster as kube-scheduler holds it, and its profiles.
type world struct {
	snapshot *internalcache.Snapshot
	profiles profile.Map
	victims  *victims
	budgets  int // disruption budgets: which of two is charged for a pod is chance
}

// newWorld assembles what scheduler.New does, without its queue and its threads. It lives until
// ctx is done.
func newWorld(ctx context.Context, s *scenario, client kubernetes.Interface) (*world, error) {
	logger := klog.FromContext(ctx)
	schedulerCache := internalcache.New(ctx, nil,
		utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload),
		utilfeature.DefaultFeatureGate.Enabled(features.CompositePodGroup))
	nominated := &nominator{}
	objects := s.objects
	for _, node := range s.nodes {
		schedulerCache.AddNode(logger, node)
		objects = append(objects, node)
	}
	for _, pod := range s.pods {
		objects = append(objects, pod)
		if isFinished(pod) {
			continue // filtered by the selector of the scheduler's informer
		}
		if pod.Spec.NodeName == "" {
			if err := nominated.add(pod); err != nil {
				return nil, err
			}
			continue
		}
		if err := schedulerCache.AddPod(logger, pod); err != nil {
			return nil, err
		}
	}
	for _, pod := range s.incoming {
		objects = append(objects, pod)
	}
	for _, object := range s.objects {
		if group, ok := object.(*scheduling.PodGroup); ok {
			addPodGroup(schedulerCache, group)
		}
	}
	snapshot := internalcache.NewEmptySnapshot()
	if err := schedulerCache.UpdateSnapshot(logger, snapshot); err != nil {
		return nil, err
	}
	options, err := handleOptions(ctx, objects, client)
	if err != nil {
		return nil, err
	}
	evicted := &victims{}
	profiles, err := profile.NewMap(ctx, s.config.Profiles, evicted.registry(),
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		append(options,
			frameworkruntime.WithComponentConfigVersion(s.config.APIVersion),
			frameworkruntime.WithSnapshotSharedLister(snapshot),
			frameworkruntime.WithMutableSnapshotLister(snapshot),
			frameworkruntime.WithPodNominator(nominated),
			frameworkruntime.WithPodGroupManager(schedulerCache),
		)...)
	if err != nil {
		return nil, err
	}
	budgets := 0
	for _, object := range s.objects {
		if _, ok := object.(*policy.PodDisruptionBudget); ok {
			budgets++
		}
	}
	return &world{snapshot, profiles, evicted, budgets}, nil
}

// handleOptions returns the parts of the plugins' handle that are made of API objects.
func handleOptions(ctx context.Context, objects []runtime.Object, client kubernetes.Interface) ([]frameworkruntime.Option, error) {
	factory, err := newFactory(client, objects)
	if err != nil {
		return nil, err
	}
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx),
		factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	tracking := resourceslicetracker.Options{
		EnableDeviceTaintRules:   utilfeature.DefaultFeatureGate.Enabled(features.DRADeviceTaintRules),
		EnableConsumableCapacity: utilfeature.DefaultFeatureGate.Enabled(features.DRAConsumableCapacity),
		TaintInformer:            factory.Resource().V1().DeviceTaintRules(),
	}
	setSlices(&tracking, factory)
	slices, err := resourceslicetracker.StartTracker(ctx, tracking)
	if err != nil {
		return nil, err
	}
	manager := dynamicresources.NewDRAManager(ctx, claims, slices, factory)
	if resolver, ok := manager.DeviceClassResolver().(cache.ResourceEventHandler); ok {
		if _, err := factory.Resource().V1().DeviceClasses().Informer().AddEventHandler(resolver); err != nil {
			return nil, err
		}
	}
	return append(ofThisMinor(),
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(manager),
		frameworkruntime.WithSharedCSIManager(
			nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithParallelism(1), // scenarios are answered side by side instead
	), nil
}

func isFinished(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// nominator knows the pods that preemption made room for earlier.
type nominator struct {
	pods map[string][]fwk.PodInfo
}

func (n *nominator) add(pod *v1.Pod) error {
	if pod.Status.NominatedNodeName == "" {
		return fmt.Errorf("pod %s/%s has neither a node nor a nominated node", pod.Namespace, pod.Name)
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return err
	}
	if n.pods == nil {
		n.pods = map[string][]fwk.PodInfo{}
	}
	node := pod.Status.NominatedNodeName
	n.pods[node] = append(n.pods[node], info)
	return nil
}

// Nothing is ever nominated in a world at rest.
func (n *nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (n *nominator) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (n *nominator) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}
