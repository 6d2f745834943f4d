// Package machine tells machines apart on which process IDs mean the same.
package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// ID identifies this boot of this machine and the PID namespace of this process: two processes with the same ID can judge by a
// process ID whether the other is alive. Host names cannot tell: containers and cloned machines share them. It is empty where
// the system does not say.
func ID() string {
	all := parts()
	if len(all) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:6])
}
