package kubeconfig

import (
	"fmt"

	"github.com/kcpctl/kcpctl/internal/atomicfile"
)

// WriteFile writes a kubeconfig that only its owner can read, in one step: there is never a part of it.
func WriteFile(path string, data []byte) error {
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
