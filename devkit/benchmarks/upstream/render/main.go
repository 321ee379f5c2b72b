// Renders templates of scheduler_perf as it does: text/template with functions for arithmetic.
//
// Reads one request after the other from standard input, as JSON:
//
//	{"path": "...", "params": {...}, "first": 0, "count": 3, "of": 10}
//
// and answers each with `count` lines, the rendered texts as JSON strings, or with one line
// {"error": "..."}.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"
	"text/template"
)

type request struct {
	Path   string         `json:"path"`
	Params map[string]any `json:"params"`
	First  int            `json:"first"`
	Count  int            `json:"count"`
	Of     int            `json:"of"`
}

func number(value any) (float64, error) {
	switch given := value.(type) {
	case int:
		return float64(given), nil
	case int64:
		return float64(given), nil
	case float64:
		return given, nil
	case string:
		return strconv.ParseFloat(given, 64)
	}
	return 0, fmt.Errorf("no number: %v", value)
}

func over(combine func(a, b float64) float64) func(first any, others ...any) (float64, error) {
	return func(first any, others ...any) (float64, error) {
		result, err := number(first)
		for _, other := range others {
			operand, failed := number(other)
			err = errors.Join(err, failed)
			result = combine(result, operand)
		}
		return result, err
	}
}

func whole(of func(any, ...any) (float64, error)) func(any, ...any) (int, error) {
	return func(first any, others ...any) (int, error) {
		result, err := of(first, others...)
		return int(result), err
	}
}

func asJSON(value any) (string, error) {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSpace(text.String()), err
}

var (
	add      = over(func(a, b float64) float64 { return a + b })
	subtract = over(func(a, b float64) float64 { return a - b })
	multiply = over(func(a, b float64) float64 { return a * b })
	divide   = over(func(a, b float64) float64 { return a / b })
	modulo   = over(func(a, b float64) float64 { return float64(int(a) % int(b)) })
	same     = over(func(a, b float64) float64 { return a })

	functions = template.FuncMap{
		"AddFloat": add, "AddInt": whole(add),
		"SubtractFloat": subtract, "SubtractInt": whole(subtract),
		"MultiplyFloat": multiply, "MultiplyInt": whole(multiply),
		"DivideFloat": divide, "DivideInt": whole(divide),
		"Mod": whole(modulo), "Int": whole(same), "JSON": asJSON,
	}
)

// A whole number prints without a point, however large it is.
func plain(value any) any {
	switch given := value.(type) {
	case json.Number:
		if integer, err := given.Int64(); err == nil {
			return integer
		}
		float, _ := given.Float64()
		return float
	case []any:
		for place := range given {
			given[place] = plain(given[place])
		}
	case map[string]any:
		for key := range given {
			given[key] = plain(given[key])
		}
	}
	return value
}

func render(wanted request, emit func(string) error) error {
	text, err := os.ReadFile(wanted.Path)
	if err != nil {
		return err
	}
	parsed, err := template.New(wanted.Path).Funcs(functions).Parse(string(text))
	if err != nil {
		return err
	}
	plain(wanted.Params)
	for index := wanted.First; index < wanted.First+wanted.Count; index++ {
		params := maps.Clone(wanted.Params)
		if params == nil {
			params = map[string]any{}
		}
		params["Index"], params["Count"] = index, wanted.Of
		var out bytes.Buffer
		if err := parsed.Execute(&out, params); err != nil {
			return err
		}
		if err := emit(out.String()); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	requests := json.NewDecoder(os.Stdin)
	requests.UseNumber()
	answers := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(answers)
	encoder.SetEscapeHTML(false)
	for {
		var wanted request
		if err := requests.Decode(&wanted); err == io.EOF {
			return
		} else if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := render(wanted, func(text string) error { return encoder.Encode(text) }); err != nil {
			encoder.Encode(map[string]string{"error": err.Error()})
		}
		answers.Flush()
	}
}
