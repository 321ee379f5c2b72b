package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// question is one selector and the devices that it is asked about.
type question struct {
	Selector string   `json:"selector"`
	Devices  []device `json:"devices"`
}

type device struct {
	Driver string `json:"driver"`
	resourceapi.Device
}

// said is what the evaluator says: why the selector is none, or for each device a bool or an error.
type said struct {
	Invalid string `json:"invalid,omitempty"`
	Answers []any  `json:"answers,omitempty"`
}

// answerSelectors reads one question a line and writes what Kubernetes' own evaluator of device
// selectors says, as the scheduler asks it.
func answerSelectors(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(bufio.NewReaderSize(in, 1<<20))
	writer := bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	for {
		var asked question
		if err := decoder.Decode(&asked); err == io.EOF {
			return writer.Flush()
		} else if err != nil {
			return err
		}
		if err := encoder.Encode(ask(asked)); err != nil {
			return err
		}
	}
}

func ask(asked question) (answer said) {
	defer func() {
		if problem := recover(); problem != nil {
			answer = said{Invalid: fmt.Sprint("panic: ", problem)}
		}
	}()
	compiler := dracel.GetCompiler(dracel.Features{
		EnableConsumableCapacity: true,
		EnableListTypeAttributes: true,
	})
	compiled := compiler.CompileCELExpression(asked.Selector, dracel.Options{
		DisableCostEstimation: true,
	})
	if compiled.Error != nil {
		return said{Invalid: compiled.Error.Error()}
	}
	for _, one := range asked.Devices {
		device, err := celDevice(one.Driver, one.Device)
		if err != nil {
			return said{Invalid: err.Error()}
		}
		matches, _, err := compiled.DeviceMatches(context.Background(), device)
		if err != nil {
			answer.Answers = append(answer.Answers, err.Error())
		} else {
			answer.Answers = append(answer.Answers, matches)
		}
	}
	return answer
}
