#!/bin/sh
# Package:   k8s.io/dynamic-resource-allocation/cel v0.37.2 (Kubernetes 1.37.2), Go 1.26 or newer.
# Behaviour: a quantity is an integer by how it was written, not by its value; a suffix alone is a
#            quantity, of zero; and a sum of quantities can be compared from its own left side only.
# A good guess fails: 1.0, 2000m and 1Pi are whole numbers, and `==` is symmetric. An evaluator that
#            keeps exact numbers says true to all of the first, false to "Ki", and never fails for a sum.
# Seen on 29 November 2026: the lines under `want` below.
# Exits with 1 if one of them changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >want <<'TEXT'
quantity("1.0").isInteger()   false
quantity("2000m").isInteger()   false
quantity("1Ti").isInteger()   true
quantity("1Pi").isInteger()   false
quantity("1000T").isInteger()   true
isQuantity("Ki")   true
isQuantity("Pi")   false
isQuantity(".")   true
quantity("Ki") == quantity("0")   true
quantity("1").add(1) == quantity("2")   true
quantity("2") == quantity("1").add(1)   no such overload
quantity("2") != quantity("1").add(1)   true
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
