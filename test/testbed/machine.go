package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// requirement is a Debian package and the program in it that the testbed, or another test, uses.
type requirement struct {
	pkg, program string
}

// requirements are the packages of nodes and tests.
func requirements() []requirement {
	return []requirement{
		{"runc", "runc"},
		{"containernetworking-plugins", "ptp"},
		{"iptables", "iptables"},
		{"conntrack", "conntrack"},
		{"socat", "socat"},
		{"ethtool", "ethtool"},
		{"kmod", "modprobe"},
		{"iproute2", "ip"},
		{"mount", "umount"},
		{"util-linux", "nsenter"},
		{"dash", "dash"}, // test/install
		{"busybox", "busybox"},
	}
}

// further are packages that only their users install.
func further() []requirement {
	return []requirement{
		{"mkdocs-material", "mkdocs"}, // make site
		{"prometheus", "promtool"},    // test/e2e/long
		{"rpm", "rpm"},                // make release-test
		ipset(),
	}
}

// ipset is a program of the firewall.
func ipset() requirement { return requirement{"ipset", "ipset"} }

// cniDirs returns the directories of CNI plugins in different distributions.
func cniDirs() []string { return []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} }

func runPackages(ctx context.Context, t *testbed, o *options) error {
	if len(o.args) == 0 {
		return requireMachine(ctx, t.log)
	}
	var wanted []requirement
	for _, name := range o.args {
		i := slices.IndexFunc(further(), func(r requirement) bool { return r.pkg == name })
		if i < 0 {
			return fmt.Errorf("unknown package %q", name)
		}
		wanted = append(wanted, further()[i])
	}
	return install(ctx, t.log, wanted)
}

// requireMachine checks that the machine can run a node, and installs missing Debian packages of all tests.
func requireMachine(ctx context.Context, log *progress) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a node needs Linux, this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("a node needs root: run this with sudo -E")
	}
	if err := raiseInotify(); err != nil {
		return err
	}
	return install(ctx, log, requirements())
}

// install installs the packages whose programs are missing.
func install(ctx context.Context, log *progress, wanted []requirement) error {
	lacking := lackingPackages(wanted)
	if len(lacking) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("programs are missing; install the equivalents of these Debian packages: %s", strings.Join(lacking, " "))
	}
	start, err := keepServicesDown()
	if err != nil {
		return err
	}
	defer start()
	began := time.Now()
	log.note("installing %s", strings.Join(lacking, " "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, lacking...)} {
		if _, err := (command{name: "apt-get", args: args, env: []string{"DEBIAN_FRONTEND=noninteractive"}}).run(ctx); err != nil {
			return err
		}
	}
	if lacking = lackingPackages(wanted); len(lacking) > 0 {
		return fmt.Errorf("the programs of these packages are still not found after their installation: %s", strings.Join(lacking, " "))
	}
	log.step("packages installed", time.Since(began))
	return nil
}

// keepServicesDown makes packages that are installed start no services, until the returned function is called (Debian:
// invoke-rc.d(8)). A policy of the machine has priority. One that a killed testbed has left is recognized and removed.
func keepServicesDown() (allow func(), err error) {
	const policy, content = "/usr/sbin/policy-rc.d", "#!/bin/sh\n# Written by kcpctl's testbed while it installs packages.\nexit 101\n"
	allow = func() { _ = os.Remove(policy) }
	f, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, fs.ErrExist) {
		if has, err := os.ReadFile(policy); err != nil || string(has) != content {
			return func() {}, err
		}
		return allow, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(content)
	return allow, errors.Join(err, f.Close())
}

// lackingPackages looks for programs, because other distributions have other packages.
func lackingPackages(wanted []requirement) []string {
	dirs := append(filepath.SplitList(os.Getenv("PATH")), append(cniDirs(), "/usr/sbin", "/sbin")...)
	var lacking []string
	for _, r := range wanted {
		found := false
		for _, dir := range dirs {
			found = found || exists(filepath.Join(dir, r.program))
		}
		if !found {
			lacking = append(lacking, r.pkg)
		}
	}
	return lacking
}

// raiseInotify raises the inotify limits, which many pods would exceed.
func raiseInotify() error {
	for name, want := range map[string]int{"max_user_instances": 1024, "max_user_watches": 131072} {
		file := filepath.Join("/proc/sys/fs/inotify", name)
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		has, err := strconv.Atoi(strings.TrimSpace(string(content)))
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if has >= want {
			continue
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(want)), 0o644); err != nil {
			return fmt.Errorf("raise fs.inotify.%s from %d to %d: %w", name, has, want, err)
		}
	}
	return nil
}
