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

// hub is a network namespace with a bridge, onto which a cable leads from each node and from the machine, where its end has
// the same name. In a namespace of its own the bridge is out of reach of the machine's iptables rules, such as Docker's.
const (
	hub         = "kcpctl-net"
	hubAddress  = "10.213.0.1/24" // the machine's
	testbedCIDR = "10.213.0.0/17" // holds every address of the testbed
)

// connect gives the node its network namespace, its cable to the hub, and the routes to it.
func (t *testbed) connect(ctx context.Context, n node) (string, error) {
	unlock, err := t.lock(ctx, "network")
	if err != nil {
		return "", err
	}
	defer unlock()
	if n.connected(ctx) {
		return "exists", nil
	}
	if err := addressesFree(); err != nil {
		return "", err
	}
	err = ip(ctx,
		"netns add "+hub,
		"-n "+hub+" link add hub type bridge",
		"-n "+hub+" link set hub up",
		"link add "+hub+" type veth peer name machine netns "+hub,
		"-n "+hub+" link set machine master hub up",
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

// connected says whether the node's network is complete: what is set up last is there.
func (n node) connected(ctx context.Context) bool {
	route, err := command{name: "ip", args: []string{"route", "show", n.balancers}}.run(ctx)
	return err == nil && strings.Contains(route, n.address) && exists("/run/netns/"+n.id)
}

// route leads the machine to the node's pods and Services, and the other node to its load balancers. The nodes get no
// default route: a pod reaches the other node's addresses on the hub, and nothing behind them.
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
			if err == nil && i.Name != hub && ours.Overlaps(prefix.Masked()) {
				return fmt.Errorf("the testbed needs %s, and %s has the address %s", ours, i.Name, prefix)
			}
		}
	}
	return nil
}

// disconnect removes the node's network; the hub goes with the last node.
func (t *testbed) disconnect(ctx context.Context, n node) error {
	unlock, err := t.lock(ctx, "network")
	if err != nil {
		return err
	}
	defer unlock()
	last := !otherNodes(n)
	var errs []error
	// Cables first: the kernel takes its time to remove them after their namespace, and the next up makes new ones.
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
	removeNetnsFolder(ctx)
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

// removeNetnsFolder removes the folder that ip made and mounted for the names of namespaces, if there is none left.
func removeNetnsFolder(ctx context.Context) {
	const dir = "/run/netns"
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		return
	}
	command{name: "umount", args: []string{dir}}.run(ctx) //nolint:errcheck // it need not be a mount
	os.Remove(dir)                                        //nolint:errcheck // an empty folder harms nobody
}

// remove runs a command of ip whose object need not be there.
func remove(ctx context.Context, args string) error {
	err := ip(ctx, args)
	if err != nil && (strings.Contains(err.Error(), "Cannot find device") || strings.Contains(err.Error(), "No such file")) {
		return nil
	}
	return err
}

// ip runs commands of ip one after the other. What is there already, an earlier attempt made.
func ip(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		_, err := command{name: "ip", args: strings.Fields(c)}.run(ctx)
		if err != nil && !strings.Contains(err.Error(), "File exists") {
			return err
		}
	}
	return nil
}
