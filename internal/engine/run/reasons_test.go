package run

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReasonsOfManyWaits(t *testing.T) {
	var reported []string
	r := NewReasons(func(msg string) { reported = append(reported, msg) })
	for i := range 5 {
		r.Set(fmt.Sprintf("s%d", i), "not scheduled")
	}
	r.Set("s0", "initializing")
	r.Set("s0", "initializing")
	r.Set("s0", "")
	require.Equal(t, []string{
		"s0: not scheduled", "s0, s1: not scheduled", "s0, s1, s2: not scheduled", "s0, s1, s2, s3: not scheduled",
		"s0, s1, s2 and 2 more: not scheduled", "s0: initializing; s1, s2, s3, s4: not scheduled", "s1, s2, s3, s4: not scheduled",
	}, reported)
	for i := range 9 {
		r.Set(fmt.Sprintf("t%d", i), fmt.Sprintf("reason %d", i))
	}
	require.Equal(t, "s1, s2, s3, s4: not scheduled; t0: reason 0; t1: reason 1 and 7 more", reported[len(reported)-1])
}
