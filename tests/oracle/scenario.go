package main

import (
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	kubeschedulerconfigv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
)

// scenario is a cluster at rest and the pods to be judged in it, each alone.
type scenario struct {
	nodes    []*v1.Node
	pods     []*v1.Pod // placed, or nominated to a node
	incoming []*v1.Pod
	objects  []runtime.Object
	config   *config.KubeSchedulerConfiguration
	// repeats is how often each pod is judged: once, but where answers depend on the order of a
	// hash map.
	repeats int
	// runs is how often a pod that fits nowhere is given to PostFilter; the choice between equal
	// candidates is random. 0: not at all.
	runs int
}

func decodeScenario(line []byte) (*scenario, error) {
	var raw struct {
		Nodes    []json.RawMessage
		Pods     []json.RawMessage
		Incoming []json.RawMessage
		Objects  []json.RawMessage
		Config   json.RawMessage
		Runs     int
		Repeats  int
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return nil, err
	}
	result := &scenario{runs: raw.Runs, repeats: raw.Repeats}
	err := errors.Join(
		decodeAll(raw.Nodes, "nodes", &result.nodes),
		decodeAll(raw.Pods, "pods", &result.pods),
		decodeAll(raw.Incoming, "incoming", &result.incoming),
	)
	if err != nil {
		return nil, err
	}
	for i, text := range raw.Objects {
		object, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
		result.objects = append(result.objects, object)
	}
	result.config, err = decodeConfig(raw.Config)
	return result, err
}

func decodeAll[T any](raw []json.RawMessage, field string, into *[]*T) error {
	for i, text := range raw {
		object := new(T)
		if err := utiljson.Unmarshal(text, object); err != nil {
			return fmt.Errorf("%s[%d]: %w", field, i, err)
		}
		*into = append(*into, object)
	}
	return nil
}

// decodeConfig reads and validates a configuration as kube-scheduler does; none is the default.
func decodeConfig(text []byte) (*config.KubeSchedulerConfiguration, error) {
	if len(text) == 0 || string(text) == "null" {
		versioned := &kubeschedulerconfigv1.KubeSchedulerConfiguration{}
		configscheme.Scheme.Default(versioned)
		cfg := &config.KubeSchedulerConfiguration{}
		return cfg, configscheme.Scheme.Convert(versioned, cfg, nil)
	}
	object, version, err := configscheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	cfg, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("config: want a KubeSchedulerConfiguration, got a %s", version)
	}
	cfg.APIVersion = version.GroupVersion().String()
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return cfg, nil
}
