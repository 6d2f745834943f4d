package kubeconfig

import "fmt"

// WriteFile writes a kubeconfig that only its owner can read, in one step: there is never a part of it.
func WriteFile(path string, data []byte) error {
	if err := replace(path, data); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
