package main

import "fmt"

// addFleet reports the figures of a size, with the aims, and with ten times the figures of a tenth of it.
func (r *report) addFleet(size fleetSize, f fleetFigures, before []fleetFigures) {
	name := fmt.Sprintf("fleet of %d objects, ", f.objects)
	if f.objects == 0 {
		name = fmt.Sprintf("fleet of %d objects, ", size.workspaces*size.each)
	}
	for _, row := range []struct {
		name, unit string
		of         func(fleetFigures) float64
		aim        float64
		grows      bool
	}{
		{"leaves", "n", func(f fleetFigures) float64 { return float64(f.leaves) }, 0, true},
		{"new: first decision", "s", func(f fleetFigures) float64 { return f.first }, 0, true},
		{"new: all decided", "s", func(f fleetFigures) float64 { return f.all }, 0, true},
		{"start: all decided", "s", func(f fleetFigures) float64 { return f.again }, aimStart, true},
		{"start: requests written", "n", func(f fleetFigures) float64 { return f.writes }, 0, false},
		{"memory", "MB", func(f fleetFigures) float64 { return f.memory }, aimMemory, true},
		{"memory, peak", "MB", func(f fleetFigures) float64 { return f.peak }, 0, true},
		{"at rest, of a core", "x", func(f fleetFigures) float64 { return f.rest }, aimRest, true},
		{"at rest, requests written in 30 s", "n", func(f fleetFigures) float64 { return f.restWrites }, 0, false},
		{"the same, to the compute workspace", "n", func(f fleetFigures) float64 { return f.restOwn }, 0, false},
		{"a node joins: requests written", "n", func(f fleetFigures) float64 { return f.node }, aimNode, false},
		{"create to existing, P50", "s", func(f fleetFigures) float64 { return f.p50 }, 0, false},
		{"create to existing, P99", "s", func(f fleetFigures) float64 { return f.p99 }, aimExist, false},
		{"the same, one floods, P50", "s", func(f fleetFigures) float64 { return f.flood50 }, 0, false},
		{"the same, one floods, P99", "s", func(f fleetFigures) float64 { return f.flood99 }, aimFlood * f.p99, false},
	} {
		var bounds []against
		if row.aim > 0 {
			bounds = append(bounds, reference("aim", row.aim))
		}
		if row.grows && len(before) > 0 {
			bounds = append(bounds, reference("10 times a tenth", 10*row.of(before[0])))
		}
		r.add(name+row.name, row.unit, []float64{row.of(f)}, bounds...)
	}
}
