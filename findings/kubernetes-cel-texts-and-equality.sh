#!/bin/sh
# Package:   k8s.io/dynamic-resource-allocation/cel v0.37.2 (Kubernetes 1.37.2), Go 1.26 or newer.
# Behaviour: a double as text has an exponent from a million on; what cannot be compared fails `==`, is
#            `!=`, and in a list is equal; text functions take indices beyond the end.
# A good guess fails: CEL in other languages writes 1000000 for the double, `a != b` is `!(a == b)`,
#            lists are equal if their elements are, and an index that is too large is an error
#            (with charAt and substring it is one here, too).
# Seen on 29 November 2026: the lines under `want` below.
# Exits with 1 if one of them changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >want <<'TEXT'
string(999999.0) == "999999"   true
string(1000000.0) == "1e+06"   true
string(85899345920.0) == "8.589934592e+10"   true
device.attributes["d"].version == dyn(1)   no such overload
device.attributes["d"].version != dyn(1)   true
device.attributes["d"].versions == device.attributes["d"].bools   true
"abc".indexOf("", 5) == 3   true
"abc".indexOf("c", 9) == -1   true
"abc".lastIndexOf("c", 3) == -1   true
"abc".charAt(4) == ""   index out of range: 4
{"a": 1, "a": 2}["a"] == 2   true
TEXT
cat >main.go <<'GO'
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

func main() {
	compiler := dracel.GetCompiler(dracel.Features{
		EnableConsumableCapacity: true, EnableListTypeAttributes: true,
	})
	version := "1.2.3"
	device := dracel.Device{
		Driver: "d",
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"version":  {VersionValue: &version},
			"versions": {VersionValues: []string{"1.2.3"}},
			"bools":    {BoolValues: []bool{true}},
		},
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		expression, _, _ := strings.Cut(lines.Text(), "   ")
		compiled := compiler.CompileCELExpression(expression, dracel.Options{})
		if compiled.Error != nil {
			fmt.Printf("%s   refused\n", expression)
			continue
		}
		matches, _, err := compiled.DeviceMatches(context.Background(), device)
		if err != nil {
			fmt.Printf("%s   %v\n", expression, err)
			continue
		}
		fmt.Printf("%s   %v\n", expression, matches)
	}
}
GO
cat >go.mod <<'MOD'
module finding

go 1.26.0

require (
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
	k8s.io/dynamic-resource-allocation v0.37.2
)
MOD
go mod tidy >log 2>&1 || { cat log; exit 2; }
go run . <want >got
diff want got
cat got
