//go:build !since_1_38

package main

import (
	resourceapi "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// stored returns an object as informers hold it.
func stored(object runtime.Object) (runtime.Object, error) { return object, nil }

// setSlices adds where ResourceSlices are read from.
func setSlices(options *resourceslicetracker.Options, factory informers.SharedInformerFactory) {
	options.SliceInformer = factory.Resource().V1().ResourceSlices()
}

// addPodGroup lets the scheduler know a PodGroup.
func addPodGroup(cache internalcache.Cache, group *scheduling.PodGroup) { cache.AddPodGroup(group) }

// celDevice returns a device as selectors see it.
func celDevice(driver string, device resourceapi.Device) (dracel.Device, error) {
	return dracel.Device{
		Driver:                   driver,
		AllowMultipleAllocations: device.AllowMultipleAllocations,
		Attributes:               device.Attributes,
		Capacity:                 device.Capacity,
	}, nil
}

// ofThisMinor returns the parts of the plugins' handle that other minor versions do not have.
func ofThisMinor() []frameworkruntime.Option { return nil }

func (n *nominator) NominatedPodsForNode(node string) []fwk.PodInfo { return n.pods[node] }
