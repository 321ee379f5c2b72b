// Command oracle answers scenarios with kube-scheduler's own plugins.
//
// It reads one scenario a line on stdin, in the format of tests/data/conformance, and writes the
// same scenario with its `answers` to stdout, in the same order, each as soon as it is known. A
// scenario that cannot be answered comes back with an `error` instead; the program goes on.
//
// With -gates it answers as a kube-scheduler with these feature gates set.
//
// With -validate it also says, in `invalid`, which objects the API server would refuse. With
// -selectors it answers device selectors in place of scenarios (see selectors.go).
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// panics counts what plugins panicked with in goroutines of the framework, where nobody but the
// handler of the runtime package sees it.
var panics atomic.Int64

func main() {
	validate := flag.Bool("validate", false, "name the objects that an API server would refuse")
	selectors := flag.Bool("selectors", false, "answer device selectors in place of scenarios")
	gates := flag.String("gates", "", "feature gates to set, as A=true,B=false")
	flag.Parse()
	if *selectors {
		if err := answerSelectors(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	klog.SetLogger(klog.Logger{}) // what plugins log is in the statuses too
	utilruntime.ReallyCrash = false
	utilruntime.ErrorHandlers = nil
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, value any) {
		panics.Add(1)
		fmt.Fprintf(os.Stderr, "oracle: a plugin panicked: %v\n%s", value, debug.Stack())
	}}
	// Victims are evicted before PostFilter returns: nothing goes on beside the next answer.
	err := utilfeature.DefaultMutableFeatureGate.SetFromMap(
		map[string]bool{string(features.SchedulerAsyncPreemption): false})
	if err != nil {
		fatal(err)
	}
	if err := utilfeature.DefaultMutableFeatureGate.Set(*gates); err != nil {
		fatal(err)
	}
	metrics.Register()
	if err := serve(os.Stdin, os.Stdout, *validate); err != nil {
		fatal(err)
	}
}

// serve answers the lines of in, several at a time, in their order.
func serve(in io.Reader, out io.Writer, validate bool) error {
	type job struct {
		line   []byte
		answer chan []byte
	}
	workers := runtime.GOMAXPROCS(0)
	todo := make(chan job)
	ordered := make(chan job, 4*workers)
	for range workers {
		go func() {
			client := newClient()
			for next := range todo {
				next.answer <- answerLine(next.line, client, validate)
			}
		}()
	}
	failed := make(chan error, 1)
	go func() {
		defer close(ordered)
		reader := bufio.NewReaderSize(in, 1<<20)
		for {
			line, err := reader.ReadBytes('\n')
			if line = bytes.TrimSpace(line); len(line) > 0 {
				next := job{line, make(chan []byte, 1)}
				ordered <- next
				todo <- next
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					failed <- err
				}
				close(todo)
				return
			}
		}
	}()
	for next := range ordered {
		if _, err := out.Write(append(<-next.answer, '\n')); err != nil {
			return err
		}
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// answerLine returns the line with `answers`, or with `error` if it cannot be answered.
func answerLine(line []byte, client *fake.Clientset, validate bool) []byte {
	fields := map[string]json.RawMessage{}
	err := json.Unmarshal(line, &fields)
	if err == nil {
		delete(fields, "answers")
		err = answerFields(line, fields, client, validate)
	}
	if err != nil {
		fields["error"] = mustEncode(err.Error())
	}
	return mustEncode(fields)
}

func answerFields(
	line []byte, fields map[string]json.RawMessage, client *fake.Clientset, validate bool,
) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v\n%s", value, debug.Stack())
		}
	}()
	before := panics.Load()
	scenario, err := decodeScenario(line)
	if err != nil {
		return err
	}
	if validate {
		if invalid := scenario.invalid(); len(invalid) > 0 {
			fields["invalid"] = mustEncode(invalid)
		}
	}
	client.ClearActions() // it remembers all, and nobody asks
	answers, err := scenario.answer(client)
	if err != nil {
		return err
	}
	if panics.Load() != before {
		return errors.New("a plugin panicked")
	}
	fields["answers"] = mustEncode(answers)
	return nil
}

func mustEncode(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return encoded
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "oracle:", err)
	os.Exit(1)
}
