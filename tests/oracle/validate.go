package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/resource"
	resourcevalidation "k8s.io/kubernetes/pkg/apis/resource/validation"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulingvalidation "k8s.io/kubernetes/pkg/apis/scheduling/validation"
	"k8s.io/kubernetes/pkg/apis/storage"
	storagevalidation "k8s.io/kubernetes/pkg/apis/storage/validation"

	// The defaults and conversions of every group that a scenario may hold.
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

// invalid says what an API server would have against creating the scenario's objects, with its
// defaults filled in; nothing if all is well.
func (s *scenario) invalid() []string {
	found := []string{}
	check := func(where string, i int, object runtime.Object) {
		for _, err := range validateObject(object.DeepCopyObject()) {
			found = append(found, fmt.Sprintf("%s[%d]: %v", where, i, err))
		}
	}
	for i, node := range s.nodes {
		check("nodes", i, node)
	}
	for i, pod := range s.pods {
		check("pods", i, pod)
	}
	for i, pod := range s.incoming {
		check("incoming", i, pod)
	}
	for i, object := range s.objects {
		check("objects", i, object)
	}
	return found
}

func validateObject(versioned runtime.Object) []error {
	legacyscheme.Scheme.Default(versioned)
	object, err := legacyscheme.Scheme.ConvertToVersion(versioned, runtime.InternalGroupVersioner)
	if err != nil {
		return []error{err}
	}
	var found field.ErrorList
	switch object := object.(type) {
	case *core.Pod:
		found = validatePod(object)
	case *core.Node:
		found = corevalidation.ValidateNode(object)
	case *core.Namespace:
		found = corevalidation.ValidateNamespace(object)
	case *core.PersistentVolume:
		found = corevalidation.ValidatePersistentVolume(object,
			corevalidation.ValidationOptionsForPersistentVolume(object, nil))
	case *core.PersistentVolumeClaim:
		found = corevalidation.ValidatePersistentVolumeClaim(object,
			corevalidation.ValidationOptionsForPersistentVolumeClaimCreate())
	case *storage.StorageClass:
		found = storagevalidation.ValidateStorageClass(object)
	case *storage.CSINode:
		found = storagevalidation.ValidateCSINode(object)
	case *storage.CSIDriver:
		found = storagevalidation.ValidateCSIDriver(object)
	case *storage.CSIStorageCapacity:
		found = storagevalidation.ValidateCSIStorageCapacity(object, storagevalidation.CSIStorageCapacityValidateOptions{})
	case *storage.VolumeAttachment:
		found = storagevalidation.ValidateVolumeAttachment(object)
	case *policy.PodDisruptionBudget:
		found = policyvalidation.ValidatePodDisruptionBudget(object, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *resource.ResourceClaim:
		found = resourcevalidation.ValidateResourceClaim(object)
	case *resource.ResourceSlice:
		found = resourcevalidation.ValidateResourceSlice(object)
	case *resource.DeviceTaintRule:
		found = resourcevalidation.ValidateDeviceTaintRule(object)
	case *resource.DeviceClass:
		found = resourcevalidation.ValidateDeviceClass(object)
	case *scheduling.PodGroup:
		found = schedulingvalidation.ValidatePodGroup(object)
	case *apps.ReplicaSet:
		// Only selectors are read of workloads; scenarios leave the templates out.
		found = appsvalidation.ValidateReplicaSetSpec(&object.Spec, nil, field.NewPath("spec"), corevalidation.PodValidationOptions{})
		found = only(found, "spec.selector")
	}
	errs := []error{}
	for _, err := range found {
		errs = append(errs, err)
	}
	return errs
}

func validatePod(pod *core.Pod) field.ErrorList {
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, nil, &pod.ObjectMeta, nil)
	options.ResourceIsPod = true
	return corevalidation.ValidatePodCreate(pod, options)
}

func only(errs field.ErrorList, path string) field.ErrorList {
	kept := field.ErrorList{}
	for _, err := range errs {
		if err.Field == path || len(err.Field) > len(path) && err.Field[:len(path)+1] == path+"." {
			kept = append(kept, err)
		}
	}
	return kept
}
