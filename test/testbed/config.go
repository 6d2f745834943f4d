package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed static
var static embed.FS

// render renders an embedded template. Values are written as JSON, which is a valid string or list in YAML and TOML.
func render(name string, data map[string]any) ([]byte, error) {
	t, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{
		"json": func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
	}).ParseFS(static, "static/"+name)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// files writes the certificates and configurations of the node, and the provisioner binary.
func (n node) files() error {
	for _, dir := range []string{"log", "kubelet", "pod-logs", "volume-plugins", "volumes", "kubeconfigs"} {
		if err := os.MkdirAll(n.stateFile(dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{n.stateFile("etcd"), n.stateFile("pki"), n.run} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := n.issueAll(); err != nil {
		return err
	}
	for _, c := range n.configs() {
		content, err := render(filepath.Base(c.template), c.data)
		if err != nil {
			return fmt.Errorf("render %s: %w", c.template, err)
		}
		if err := writeFile(c.file, content, 0o644); err != nil {
			return err
		}
	}
	if err := writeFile(n.stateFile("resolv.conf"), []byte("options ndots:1\n"), 0o644); err != nil {
		return err
	}
	return n.copyProgram()
}

type config struct {
	template, file string
	data           map[string]any
}

func (n node) configs() []config {
	return []config{
		{"containerd.toml", n.stateFile("containerd.toml"), map[string]any{
			"Root": n.stateFile("containerd"), "State": filepath.Join(n.run, "containerd"), "Socket": n.socket(),
			"RuncRoot": filepath.Join(n.run, "runc"), "Pause": pauseImage,
			"CNIBin": cniDirs(), "CNIConf": n.stateFile("cni"), "Verifiers": n.stateFile("image-verifiers"),
		}},
		{"cni.conflist", n.stateFile("cni", "10-testbed.conflist"), map[string]any{
			"Name": n.id, "PodCIDR": n.podCIDR, "DataDir": n.stateFile("cni-addresses"),
		}},
		{"kubelet.yaml", n.stateFile("kubelet.yaml"), map[string]any{
			"Address": n.address, "DNS": n.dnsService, "Runtime": "unix://" + n.socket(),
			"CA": n.stateFile("pki", "ca.crt"), "Certificate": n.stateFile("pki", "serving.crt"), "Key": n.stateFile("pki", "serving.key"),
			"ResolvConf": n.stateFile("resolv.conf"), "PodLogs": n.stateFile("pod-logs"), "VolumePlugins": n.stateFile("volume-plugins"),
		}},
	}
}

// addons returns the manifests that up applies.
func (n node) addons() ([]byte, error) {
	return render("addons.yaml", map[string]any{
		"DNS": n.dnsService, "CoreDNS": coreDNSImage, "Provisioner": provisionerName,
	})
}

// copyProgram copies this program, because go run deletes it after up.
func (n node) copyProgram() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return writeFile(n.stateFile("testbed"), content, 0o755)
}
