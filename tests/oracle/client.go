package main

import (
	"sort"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/testing"
)

// recordingClient accepts every write and does nothing but remember it.
type recordingClient struct {
	*fake.Clientset
}

func newClient() *recordingClient {
	client := fake.NewClientset()
	client.PrependReactor("*", "*", func(action testing.Action) (bool, runtime.Object, error) {
		switch action := action.(type) {
		case testing.CreateAction: // updates too, they have the same methods
			return true, action.GetObject(), nil
		default:
			return true, nil, nil
		}
	})
	return &recordingClient{client}
}

// takeDeletedPods returns `namespace/name` of every pod deleted since the last call, sorted.
func (c *recordingClient) takeDeletedPods() []string {
	deleted := []string{}
	for _, action := range c.Actions() {
		if gone, ok := action.(testing.DeleteAction); ok && action.Matches("delete", "pods") {
			deleted = append(deleted, gone.GetNamespace()+"/"+gone.GetName())
		}
	}
	c.ClearActions()
	sort.Strings(deleted)
	return deleted
}
