package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// requirement is a Debian package and what the testbed uses of it.
type requirement struct {
	pkg, program string
}

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
	}
}

// cniFolders is where distributions put the CNI plugins.
func cniFolders() []string { return []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} }

// requireMachine checks what a node needs of the machine, and installs the Debian packages that are missing.
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
	lacking := lackingPackages()
	if len(lacking) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install what these Debian packages hold: %s", strings.Join(lacking, " "))
	}
	began := time.Now()
	log.note("installing %s", strings.Join(lacking, " "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, lacking...)} {
		if _, err := (command{name: "apt-get", args: args, env: []string{"DEBIAN_FRONTEND=noninteractive"}}).run(ctx); err != nil {
			return err
		}
	}
	if lacking = lackingPackages(); len(lacking) > 0 {
		return fmt.Errorf("installed, and still not found: %s", strings.Join(lacking, " "))
	}
	log.step("packages installed", time.Since(began))
	return nil
}

// lackingPackages looks for the programs rather than the packages: elsewhere they come from other packages.
func lackingPackages() []string {
	folders := append(filepath.SplitList(os.Getenv("PATH")), append(cniFolders(), "/usr/sbin", "/sbin")...)
	var lacking []string
	for _, r := range requirements() {
		found := false
		for _, dir := range folders {
			found = found || exists(filepath.Join(dir, r.program))
		}
		if !found {
			lacking = append(lacking, r.pkg)
		}
	}
	return lacking
}

// raiseInotify raises the limits that many pods with watching processes exceed.
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
