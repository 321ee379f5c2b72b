#!/bin/sh
# Package:   k8s.io/apimachinery v0.37.2 (Kubernetes 1.37.2), Go 1.26 or newer.
# Behaviour: a MicroTime (a Lease's renewTime, an Event's eventTime) is read with exactly six digits of a
#            second; a Time (creationTimestamp, a condition's) with any number, which are then dropped.
#            Both keep an offset until they are written: then they are in UTC.
# A good guess fails: RFC 3339 lets a fraction be absent or of any length, and most libraries write what
#            they have: three digits, nine, or none when the microseconds are zero. A lease that is renewed
#            at a whole second is refused now and then, with 400.
# Seen on 30 November 2026: the lines under `want` below.
# Exits with 1 if one of them changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >want <<'TEXT'
2026-11-30T09:00:00.123456Z        MicroTime "2026-11-30T09:00:00.123456Z"   Time "2026-11-30T09:00:00Z"
2026-11-30T09:00:00Z               MicroTime refused                         Time "2026-11-30T09:00:00Z"
2026-11-30T09:00:00.123Z           MicroTime refused                         Time "2026-11-30T09:00:00Z"
2026-11-30T09:00:00.123456789Z     MicroTime refused                         Time "2026-11-30T09:00:00Z"
2026-11-30T10:00:00.123456+01:00   MicroTime "2026-11-30T09:00:00.123456Z"   Time "2026-11-30T09:00:00Z"
TEXT
cat >main.go <<'GO'
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// again reads text into a value and writes it.
func again(text string, into any) string {
	if err := json.Unmarshal([]byte(`"`+text+`"`), into); err != nil {
		return "refused"
	}
	written, err := json.Marshal(into)
	if err != nil {
		return err.Error()
	}
	return string(written)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		text := strings.Fields(lines.Text())[0]
		micro, second := again(text, &metav1.MicroTime{}), again(text, &metav1.Time{})
		fmt.Printf("%-35sMicroTime %-32sTime %s\n", text, micro, second)
	}
}
GO
cat >go.mod <<'MOD'
module finding

go 1.26.0

require k8s.io/apimachinery v0.37.2
MOD
go mod tidy >log 2>&1 || { cat log; exit 2; }
go run . <want >got
diff want got
cat got
