package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// connect gives the node its network namespace, a cable from it to the bridge, and the machine its routes. Everything that
// is there already stays.
func (n node) connect(ctx context.Context) (string, error) {
	if exists("/run/netns/" + n.id) {
		if _, err := ip(ctx, "route get "+n.dnsService); err == nil && n.cabled(ctx) {
			return "exists", nil
		}
	}
	if err := addressesFree(); err != nil {
		return "", err
	}
	for _, args := range []string{
		"link add " + bridge + " type bridge",
		"address replace " + bridgeAddress + " dev " + bridge,
		"link set " + bridge + " up",
		"netns add " + n.id,
		"link add " + n.id + " type veth peer name eth0 netns " + n.id,
		"link set " + n.id + " master " + bridge + " up",
		"-n " + n.id + " link set lo up",
		"-n " + n.id + " address replace " + n.address + "/24 dev eth0",
		"-n " + n.id + " link set eth0 up",
	} {
		if _, err := ip(ctx, args); err != nil && !strings.Contains(err.Error(), "File exists") {
			return "", err
		}
	}
	return "created", n.route(ctx)
}

// cabled says whether the node's end of the cable has its address.
func (n node) cabled(ctx context.Context) bool {
	out, err := ip(ctx, "-n "+n.id+" -o address show dev eth0")
	return err == nil && strings.Contains(out, n.address+"/")
}

// route leads the machine to the node's pods and Services, and whoever is on the bridge to its load balancers. The nodes
// get no default route: their pods reach the other node's addresses on the bridge, and nothing behind them.
func (n node) route(ctx context.Context) error {
	for _, cidr := range []string{n.podCIDR, n.serviceCIDR, n.balancers} {
		if _, err := ip(ctx, "route replace "+cidr+" via "+n.address+" dev "+bridge); err != nil {
			return err
		}
	}
	for _, other := range nodes() {
		if other.name == n.name || !exists("/run/netns/"+other.id) {
			continue
		}
		for _, args := range []string{
			"-n " + n.id + " route replace " + other.balancers + " via " + other.address,
			"-n " + other.id + " route replace " + n.balancers + " via " + n.address,
		} {
			if _, err := ip(ctx, args); err != nil {
				return err
			}
		}
	}
	return nil
}

// addressesFree fails if the machine uses the testbed's addresses for something else.
func addressesFree() error {
	ours := netip.MustParsePrefix(testbedCIDR)
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list the network interfaces: %w", err)
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return fmt.Errorf("list the addresses of %s: %w", i.Name, err)
		}
		for _, a := range addresses {
			prefix, err := netip.ParsePrefix(a.String())
			if err == nil && i.Name != bridge && ours.Overlaps(prefix.Masked()) {
				return fmt.Errorf("the testbed needs %s, and %s has the address %s", ours, i.Name, prefix)
			}
		}
	}
	return nil
}

// disconnect removes the node's network; the bridge goes with the last node.
func (n node) disconnect(ctx context.Context) error {
	var errs []error
	remove := func(args string) {
		if _, err := ip(ctx, args); err != nil {
			errs = append(errs, err)
		}
	}
	if exists("/sys/class/net/" + n.id) {
		remove("link delete " + n.id)
	}
	if exists("/run/netns/" + n.id) {
		remove("netns delete " + n.id)
	}
	if !exists("/sys/class/net/" + bridge) {
		return errors.Join(errs...)
	}
	last := true
	for _, other := range nodes() {
		last = last && !exists("/run/netns/"+other.id)
	}
	if last {
		remove("link delete " + bridge)
		removeNetnsFolder(ctx)
		return errors.Join(errs...)
	}
	for _, cidr := range []string{n.podCIDR, n.serviceCIDR, n.balancers} {
		remove("route flush " + cidr)
	}
	return errors.Join(errs...)
}

// removeNetnsFolder removes the folder that ip made and mounted for the names of namespaces, if there is none left.
func removeNetnsFolder(ctx context.Context) {
	const dir = "/run/netns"
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		return
	}
	command{name: "umount", args: []string{dir}}.run(ctx) //nolint:errcheck // it need not be a mount
	os.Remove(dir)                                        //nolint:errcheck // an empty folder harms nobody
}

func ip(ctx context.Context, args string) (string, error) {
	return command{name: "ip", args: strings.Fields(args)}.run(ctx)
}
