// Package machine identifies the machine, boot and PID namespace in which a process ID is valid.
package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// ID identifies this boot of this machine and the PID namespace of this process. A process can check by its process ID
// whether another process with the same ID is running. Host names are not enough: containers and cloned machines share
// them. It is empty if the system does not provide it.
func ID() string {
	all := parts()
	if len(all) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:6])
}
