//go:build kueue || koordinator || capacity

package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func (a amounts) list() corev1.ResourceList {
	found := corev1.ResourceList{}
	for name, amount := range a {
		found[corev1.ResourceName(name)] = quantity(name, amount)
	}
	return found
}

func quantity(name string, amount int64) resource.Quantity {
	if name == string(corev1.ResourceCPU) {
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	}
	return *resource.NewQuantity(amount, resource.DecimalSI)
}

func plain(list corev1.ResourceList) amounts {
	found := amounts{}
	for name, amount := range list {
		if name == corev1.ResourceCPU {
			found[string(name)] = amount.MilliValue()
		} else {
			found[string(name)] = amount.Value()
		}
	}
	return found
}
