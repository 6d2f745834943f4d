package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A defect whose text is no longer in the code would never be planted again.
func TestDefectsCanBePlanted(t *testing.T) {
	t.Chdir("../..")
	for _, d := range defects {
		_, err := d.change()
		require.NoError(t, err, d.name)
	}
}
