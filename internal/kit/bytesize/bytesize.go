// Package bytesize formats numbers of bytes.
package bytesize

import "fmt"

// Format formats a number of bytes with two digits or more: 512 B, 1.5 KiB, 31 MiB, 2.0 GiB.
func Format(n int64) string {
	const unit = 1 << 10
	v, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for ; v >= unit && len(units) > 1; units = units[1:] {
		v /= unit
	}
	if v < 10 && units[0] != "B" {
		return fmt.Sprintf("%.1f %s", v, units[0])
	}
	return fmt.Sprintf("%.0f %s", v, units[0])
}

// Of formats a part of a number of bytes: 1.5 GiB of 2.0 GiB.
func Of(part, whole int64) string { return Format(part) + " of " + Format(whole) }
