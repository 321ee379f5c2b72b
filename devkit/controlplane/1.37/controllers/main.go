// Runs two of the controllers of Kubernetes: those that make the resource claims of pods, and that
// delete what belonged to deleted objects.
//
//	controllers KUBECONFIG [FEATURE=true,...]
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
)

const (
	workers       = 5
	discovery     = 5 * time.Second
	queries       = 5000
	neverResynced = 0
)

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = queries, queries
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, neverResynced)
	claims, err := resourceclaim.NewController(
		klog.FromContext(ctx), client,
		shared.Core().V1().Pods(), shared.Scheduling().V1beta1().PodGroups(),
		shared.Resource().V1().ResourceClaims(), shared.Resource().V1().ResourceClaimTemplates(),
	)
	if err != nil {
		return err
	}
	started := make(chan struct{})
	close(started)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(
		cacheddiscovery.NewMemCacheClient(client.Discovery()))
	garbage, err := garbagecollector.NewGarbageCollector(
		ctx, client, objects, mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(
			shared, metadatainformer.NewSharedInformerFactory(objects, neverResynced)),
		started,
	)
	if err != nil {
		return err
	}
	shared.Start(ctx.Done())
	go wait.Until(mapper.Reset, discovery, ctx.Done())
	go garbage.Run(ctx, 1, discovery)
	go garbage.Sync(ctx, client.Discovery(), discovery)
	claims.Run(ctx, workers)
	return nil
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	var err error
	if len(os.Args) > 2 {
		err = utilfeature.DefaultMutableFeatureGate.Set(os.Args[2])
	}
	if err == nil {
		err = run(ctx, os.Args[1])
	}
	if err != nil {
		klog.ErrorS(err, "The controllers have ended")
		os.Exit(1)
	}
}
