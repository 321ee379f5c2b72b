package main

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/testing"
)

// newClient returns a client that accepts every write and does nothing: the world is at rest.
func newClient() *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("*", "*", func(action testing.Action) (bool, runtime.Object, error) {
		if written, ok := action.(testing.CreateAction); ok { // or an update, of the same shape
			return true, written.GetObject(), nil
		}
		return true, nil, nil
	})
	return client
}
