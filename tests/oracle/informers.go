package main

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// stillInformer is an informer of a world that does not change: it holds its objects from the
// start and tells each handler of them before AddEventHandler returns. So nothing has to be waited
// for, and the caches that plugins keep of their own are as complete as the informer. Handlers hear
// of the objects in the order in which the scenario lists them: what a plugin keeps may depend on it.
//
// What it does not have, such as RemoveEventHandler, is asked of no informer at rest.
type stillInformer struct {
	cache.SharedIndexInformer
	indexer cache.Indexer
	keys    []string // of the objects, in the order in which they were added
}

var _ cache.SharedIndexInformer = &stillInformer{}

// newFactory returns a factory whose informers hold these objects, by their types.
func newFactory(client kubernetes.Interface, objects []runtime.Object) (informers.SharedInformerFactory, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	for _, object := range objects {
		object, err := stored(object)
		if err != nil {
			return nil, err
		}
		informer := factory.InformerFor(object, newStillInformer).(*stillInformer)
		if err := informer.add(object); err != nil {
			return nil, err
		}
	}
	return factory, nil
}

func newStillInformer(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return &stillInformer{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)}
}

// add takes an object; a later one of the same name replaces it in its place.
func (i *stillInformer) add(object runtime.Object) error {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return err
	}
	if _, known, err := i.indexer.GetByKey(key); err != nil {
		return err
	} else if !known {
		i.keys = append(i.keys, key)
	}
	return i.indexer.Add(object)
}

func (i *stillInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	for _, key := range i.keys {
		object, _, err := i.indexer.GetByKey(key)
		if err != nil {
			return nil, err
		}
		handler.OnAdd(object, true)
	}
	return synced{}, nil
}

func (i *stillInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

func (i *stillInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

func (i *stillInformer) AddIndexers(indexers cache.Indexers) error {
	return i.indexer.AddIndexers(indexers)
}

func (i *stillInformer) GetStore() cache.Store     { return i.indexer }
func (i *stillInformer) GetIndexer() cache.Indexer { return i.indexer }

func (i *stillInformer) HasSynced() bool                     { return true }
func (i *stillInformer) HasSyncedChecker() cache.DoneChecker { return synced{} }
func (i *stillInformer) IsStopped() bool                     { return false }

// synced is the registration of a handler that has been told everything.
type synced struct{}

var done = func() chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}()

func (synced) HasSynced() bool                       { return true }
func (s synced) HasSyncedChecker() cache.DoneChecker { return s }
func (synced) Name() string                          { return "still" }
func (synced) Done() <-chan struct{}                 { return done }
