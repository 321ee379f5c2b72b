#!/bin/sh
# Package:   k8s.io/apimachinery v0.37.2 with k8s.io/api v0.37.2 (Kubernetes 1.37.2), Go 1.26 or newer.
# Behaviour: what a strategic merge patch adds to a list that is merged by a key stands before all that was
#            there. If the patch also names an element that was there, the new one follows that in the
#            patch's order, so a patch of B and C gives A B C, and one of C alone gives C A B.
#            `$setElementOrder` decides where it names both; an order of the new element alone changes
#            nothing.
# A good guess fails: a merge appends. A fake API server that does so has another last condition, another
#            first container and another first scheduling gate than the real one after the same patch.
# Seen on 30 November 2026: the lines under `want` below.
# Exits with 1 if one of them changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >want <<'TEXT'
conditions A B, patch C   C A B
conditions A B, patch B C   A B C
containers a b, patch c   c a b
gates a b, patch c   c a b
containers a b, patch c, order a c b   a c b
containers a b, patch c, order c   c a b
containers a b, patch c, order b a c   b a c
tolerations x y, patch z   z
TEXT
cat >main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// list makes a JSON list of objects that have one key.
func list(key string, names ...string) string {
	made := []string{}
	for _, name := range names {
		made = append(made, fmt.Sprintf(`{%q:%q}`, key, name))
	}
	return "[" + strings.Join(made, ",") + "]"
}

func show(title, part, field, key, before, patch, order string) {
	rest := ""
	if order != "" {
		rest = fmt.Sprintf(`"$setElementOrder/%s":%s,`, field, list(key, strings.Fields(order)...))
	}
	original := fmt.Sprintf(`{%q:{%q:%s}}`, part, field, list(key, strings.Fields(before)...))
	change := fmt.Sprintf(`{%q:{%s%q:%s}}`, part, rest, field, list(key, strings.Fields(patch)...))
	text, err := strategicpatch.StrategicMergePatch([]byte(original), []byte(change), corev1.Pod{})
	if err != nil {
		fmt.Printf("%s   %v\n", title, err)
		return
	}
	var got map[string]map[string][]map[string]string
	if err := json.Unmarshal(text, &got); err != nil {
		panic(err)
	}
	names := []string{}
	for _, one := range got[part][field] {
		names = append(names, one[key])
	}
	fmt.Printf("%s   %s\n", title, strings.Join(names, " "))
}

func main() {
	show("conditions A B, patch C", "status", "conditions", "type", "A B", "C", "")
	show("conditions A B, patch B C", "status", "conditions", "type", "A B", "B C", "")
	show("containers a b, patch c", "spec", "containers", "name", "a b", "c", "")
	show("gates a b, patch c", "spec", "schedulingGates", "name", "a b", "c", "")
	show("containers a b, patch c, order a c b", "spec", "containers", "name", "a b", "c", "a c b")
	show("containers a b, patch c, order c", "spec", "containers", "name", "a b", "c", "c")
	show("containers a b, patch c, order b a c", "spec", "containers", "name", "a b", "c", "b a c")
	show("tolerations x y, patch z", "spec", "tolerations", "key", "x y", "z", "")
}
GO
cat >go.mod <<'MOD'
module finding

go 1.26.0

require (
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
)
MOD
go mod tidy >log 2>&1 || { cat log; exit 2; }
go run . >got
diff want got
cat got
