package deploy_test

import (
	"runtime/debug"
	"testing"
)

// TestMain trades memory for time: the tests render and issue certificates repeatedly.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}
