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

// hub is the network namespace of a bridge. A veth pair connects it to each node and to the machine, where its end has
// the same name. In its own namespace the bridge is not subject to the iptables rules of the machine, such as those of
// Docker.
const (
	hub         = "kcpctl-net"
	hubAddress  = "10.213.0.1/24" // of the machine
	machinePort = "machine"       // the end of the machine's link in the hub
	testbedCIDR = "10.213.0.0/17" // all addresses of the testbed
)

// connect creates the network namespace of the node, its link to the hub, and the routes to it.
func (t *testbed) connect(ctx context.Context, n node) (string, error) {
	unlock, err := t.lock(ctx, "network")
	if err != nil {
		return "", err
	}
	defer unlock()
	if n.connected(ctx) {
		return "exists", connectPorts(ctx)
	}
	if err := addressesFree(); err != nil {
		return "", err
	}
	err = ip(ctx,
		"netns add "+hub,
		"-n "+hub+" link add hub type bridge",
		"-n "+hub+" link set hub up",
		"link add "+hub+" type veth peer name "+machinePort+" netns "+hub,
		"-n "+hub+" link set "+machinePort+" master hub up",
		"address replace "+hubAddress+" dev "+hub,
		"link set "+hub+" up",

		"netns add "+n.id,
		"-n "+n.id+" link add eth0 type veth peer name "+n.id+" netns "+hub,
		"-n "+hub+" link set "+n.id+" master hub up",
		"-n "+n.id+" link set lo up",
		"-n "+n.id+" address replace "+n.address+"/24 dev eth0",
		"-n "+n.id+" link set eth0 up",
	)
	if err != nil {
		return "", err
	}
	return "created", n.route(ctx)
}

// connected reports whether the network of the node is complete, by the part that is set up last.
func (n node) connected(ctx context.Context) bool {
	route, err := command{name: "ip", args: []string{"route", "show", n.balancers}}.run(ctx)
	return err == nil && strings.Contains(route, n.address) && exists("/run/netns/"+n.id)
}

// route adds routes from the machine to the pods and Services of the node, and from the other node to its load
// balancers. Nodes have no default route: a pod reaches the addresses of the other node on the hub and nothing behind
// them.
func (n node) route(ctx context.Context) error {
	var routes []string
	for _, other := range nodes() {
		if other.name != n.name && exists("/run/netns/"+other.id) {
			routes = append(routes,
				"-n "+n.id+" route replace "+other.balancers+" via "+other.address,
				"-n "+other.id+" route replace "+n.balancers+" via "+n.address)
		}
	}
	for _, cidr := range []string{n.podCIDR, n.serviceCIDR, n.balancers} {
		routes = append(routes, "route replace "+cidr+" via "+n.address+" dev "+hub)
	}
	return ip(ctx, routes...)
}

// addressesFree fails if the machine uses addresses of the testbed for something else.
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
			if err == nil && i.Name != hub && ours.Overlaps(prefix.Masked()) {
				return fmt.Errorf("the testbed needs %s, and %s has the address %s", ours, i.Name, prefix)
			}
		}
	}
	return nil
}

// disconnect removes the network of the node, and the hub with the last node.
func (t *testbed) disconnect(ctx context.Context, n node) error {
	unlock, err := t.lock(ctx, "network")
	if err != nil {
		return err
	}
	defer unlock()
	last := !otherNodes(n)
	var errs []error
	// Links first: the kernel removes them some time after their namespace, and the next up creates new ones.
	if exists("/run/netns/" + hub) {
		errs = append(errs, remove(ctx, "-n "+hub+" link delete "+n.id))
	}
	if last {
		errs = append(errs, remove(ctx, "link delete "+hub))
	}
	for _, cidr := range []string{n.podCIDR, n.serviceCIDR, n.balancers} {
		errs = append(errs, remove(ctx, "route flush "+cidr))
	}
	errs = append(errs, remove(ctx, "netns delete "+n.id))
	if last {
		errs = append(errs, remove(ctx, "netns delete "+hub))
	}
	removeNetnsDir(ctx)
	return errors.Join(errs...)
}

func otherNodes(n node) bool {
	for _, other := range nodes() {
		if other.name != n.name && exists("/run/netns/"+other.id) {
			return true
		}
	}
	return false
}

// removeNetnsDir removes the directory that ip has mounted for the names of namespaces, if it is empty.
func removeNetnsDir(ctx context.Context) {
	const dir = "/run/netns"
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		return
	}
	command{name: "umount", args: []string{dir}}.run(ctx) //nolint:errcheck // it may not be mounted
	os.Remove(dir)                                        //nolint:errcheck // an empty directory is harmless
}

// remove runs a command of ip whose object may not exist.
func remove(ctx context.Context, args string) error {
	err := ip(ctx, args)
	if err != nil && (strings.Contains(err.Error(), "Cannot find device") || strings.Contains(err.Error(), "No such file")) {
		return nil
	}
	return err
}

// ip runs commands of ip in order. Objects that exist are from an earlier attempt.
func ip(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		_, err := command{name: "ip", args: strings.Fields(c)}.run(ctx)
		if err != nil && !strings.Contains(err.Error(), "File exists") {
			return err
		}
	}
	return nil
}
