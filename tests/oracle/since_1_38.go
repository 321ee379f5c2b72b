//go:build since_1_38

package main

import (
	resourceapi "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	draapi "k8s.io/dynamic-resource-allocation/api"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// stored returns an object as informers hold it: a ResourceSlice in a form of its own.
func stored(object runtime.Object) (runtime.Object, error) {
	slice, ok := object.(*resourceapi.ResourceSlice)
	if !ok {
		return object, nil
	}
	converted := &draapi.ResourceSlice{}
	err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(slice, converted, nil)
	return converted, err
}

// setSlices adds where ResourceSlices are read from.
func setSlices(options *resourceslicetracker.Options, factory informers.SharedInformerFactory) {
	options.SliceInformer = draapi.NewInformerForResourceSlice(factory)
	options.SliceLister = draapi.NewResourceSliceLister(options.SliceInformer.GetIndexer())
}

// addPodGroup lets the scheduler know a PodGroup.
func addPodGroup(cache internalcache.Cache, group *scheduling.PodGroup) {
	cache.AddGenericPodGroup(fwk.NewGenericPodGroup(group))
}

// celDevice returns a device as selectors see it.
func celDevice(driver string, device resourceapi.Device) (dracel.Device, error) {
	spec := resourceapi.ResourceSliceSpec{Driver: driver, Devices: []resourceapi.Device{device}}
	object, err := stored(&resourceapi.ResourceSlice{Spec: spec})
	if err != nil {
		return dracel.Device{}, err
	}
	slice := object.(*draapi.ResourceSlice)
	return dracel.Device{
		Driver:                   driver,
		AllowMultipleAllocations: device.AllowMultipleAllocations,
		LookupUniqueString:       slice.LookupUniqueString,
		Attributes:               slice.Spec.Devices[0].Attributes,
		Capacity:                 slice.Spec.Devices[0].Capacity,
	}, nil
}

// ofThisMinor returns the parts of the plugins' handle that other minor versions do not have.
func ofThisMinor() []frameworkruntime.Option {
	return []frameworkruntime.Option{
		frameworkruntime.WithPreemptionManager(func(handle fwk.Handle) fwk.PreemptionManager {
			return preemption.NewPreemptionManager(handle,
				feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
		}),
	}
}

func (n *nominator) NominatedPodsForNode(_ klog.Logger, node string) []fwk.PodInfo {
	return n.pods[node]
}
