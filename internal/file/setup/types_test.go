package setup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	names := []string{"replicas", "shard/alpha", "shard/beta", "a"}
	for typed, want := range map[string]string{
		"replica":     "replicas",
		"REPLICAS":    "replicas",
		"Shard/Alhpa": "shard/alpha",
		"shard/bata":  "shard/beta",
		"b":           "a",
		"quux":        "",
	} {
		t.Run(typed, func(t *testing.T) { require.Equal(t, want, Nearest(names, typed)) })
	}
}
