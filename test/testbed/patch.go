package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// addPatchedFramework copies virtual-workspace-framework to the directory that replaces it in the go.mod of dir, and
// adds the function that kcp v0.32 needs. (An overlay would need no copy, but go rejects overlays of the module cache.)
func addPatchedFramework(ctx context.Context, dir string) error {
	const (
		module = "github.com/kcp-dev/virtual-workspace-framework"
		sum    = "h1:AStPulh0Yylg9XwMh8lxrhFvZnixV9f2dZZzHuquhs4=" // go.sum cannot pin a replaced module
	)
	download := command{name: "go", args: []string{"mod", "download", "-json", module + "@v0.31.2"}, dir: filepath.Dir(dir), env: goEnv()}
	out, err := download.run(ctx)
	if err != nil {
		return err
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		return fmt.Errorf("read the result of go mod download %s: %w", module, err)
	}
	if got.Sum != sum {
		return fmt.Errorf("%s has the hash %s, expected %s", module, got.Sum, sum)
	}
	target := filepath.Join(dir, filepath.Base(module))
	if err := os.CopyFS(target, os.DirFS(got.Dir)); err != nil {
		return fmt.Errorf("copy %s: %w", module, err)
	}
	function, err := static.ReadFile("static/forwardingregistry.go.txt")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(target, "pkg", "forwardingregistry", "kcpctl.go"), function, 0o644)
}
