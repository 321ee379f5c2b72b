// Command fairness answers cases of fair sharing with the code of one of the originals.
//
// Which one, the build tag says: kueue, koordinator, yunikorn or capacity, each with the go.mod of
// its folder in modules. It reads one case a line on stdin and writes its answer to stdout, in the
// same order: {"answer": ...}, or {"error": "..."} for a case that cannot be answered.
//
// All cases have the form of the type forest; what each original answers is beside its code.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sort"
	"strings"
)

// amounts by resource, in whole numbers: millicores of cpu, of all others units.
type amounts map[string]int64

// forest is a case: queues by their paths, and what is asked about them.
type forest struct {
	Args   map[string]any   `json:"args"`
	Total  amounts          `json:"total"`
	Queues map[string]queue `json:"queues"`
}

// queue is a queue with its attributes, which are the original's, and its pods; a queue is a leaf if
// none is under it.
type queue struct {
	Attributes json.RawMessage `json:"attributes"`
	Pods       []request       `json:"pods"` // those that run
	Head       *request        `json:"head"` // that which is next
}

type request struct {
	Name      string  `json:"name"`
	Resources amounts `json:"resources"`
	Priority  int32   `json:"priority"`
	CreatedAt int64   `json:"created_at"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fairness:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if _, err := out.Write(append(answerLine(line), '\n')); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func answerLine(line []byte) []byte {
	var found map[string]any
	if given, err := answerCase(line); err != nil {
		found = map[string]any{"error": err.Error()}
	} else {
		found = map[string]any{"answer": given}
	}
	encoded, err := json.Marshal(found)
	if err != nil {
		panic(err)
	}
	return encoded
}

func answerCase(line []byte) (given any, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v\n%s", value, debug.Stack())
		}
	}()
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	var of forest
	if err := decoder.Decode(&of); err != nil {
		return nil, err
	}
	return answer(of)
}

// attributes decodes those of a queue into into, which has to name them all.
func (q queue) attributes(into any) error {
	if len(q.Attributes) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(q.Attributes))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// paths are those of all queues, each after the one that it is under.
func (f forest) paths() []string {
	found := make([]string, 0, len(f.Queues))
	for path := range f.Queues {
		found = append(found, path)
	}
	sort.Strings(found)
	return found
}

func (f forest) isLeaf(path string) bool {
	for other := range f.Queues {
		if strings.HasPrefix(other, path+"/") {
			return false
		}
	}
	return true
}

// parent is the path of the queue that path is under; empty for one that is under none.
func parent(path string) string {
	at := strings.LastIndex(path, "/")
	return path[:max(at, 0)]
}

func (q queue) used() amounts {
	sum := amounts{}
	for _, pod := range q.Pods {
		for name, amount := range pod.Resources {
			sum[name] += amount
		}
	}
	return sum
}
