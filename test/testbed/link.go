package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// The ends of a link that can be cut. In the hub each end is a port of the bridge.
const (
	toNodes   = "nodes"   // between all nodes
	toMachine = "machine" // between the machine and one node
)

// runLink cuts a link, or restores all links.
func runLink(ctx context.Context, t *testbed, o *options) error {
	n, err := oneNode(o.node)
	if err != nil {
		return err
	}
	if !exists("/run/netns/" + n.id) {
		return fmt.Errorf("node %s is not up", n.name)
	}
	unlock, err := t.lock(ctx, "network")
	if err != nil {
		return err
	}
	defer unlock()
	switch {
	case slices.Equal(o.args, []string{"up"}):
		return connectPorts(ctx)
	case !slices.Equal(o.args, []string{"down"}):
		return fmt.Errorf("use link down or link up")
	}
	cut, err := cutPorts(n, o.to)
	if err != nil {
		return err
	}
	if err := connectPorts(ctx); err != nil { // two cuts at once would cut a third link
		return err
	}
	return isolate(ctx, true, slices.DeleteFunc(cut, func(port string) bool { return port != machinePort && !exists("/run/netns/"+port) })...)
}

// cutPorts returns the ports of the bridge that must not reach each other.
func cutPorts(n node, to string) ([]string, error) {
	switch to {
	case toMachine:
		return []string{machinePort, n.id}, nil
	case toNodes:
		var ids []string
		for _, other := range nodes() {
			ids = append(ids, other.id)
		}
		return ids, nil
	}
	return nil, fmt.Errorf("unknown end of a link %q; the ends are %s and %s", to, toNodes, toMachine)
}

// connectPorts lets all ports of the bridge reach each other. Both ends forget that the other one has not answered:
// until then each connection fails with "no route to host".
func connectPorts(ctx context.Context) error {
	ports, forget := []string{machinePort}, []string{"neighbour flush dev " + hub}
	for _, n := range nodes() {
		if exists("/run/netns/" + n.id) {
			ports, forget = append(ports, n.id), append(forget, "-n "+n.id+" neighbour flush dev eth0")
		}
	}
	if err := isolate(ctx, false, ports...); err != nil {
		return err
	}
	return ip(ctx, forget...)
}

// isolate drops all frames between isolated ports of the bridge. Open connections get no packet any more and are not
// reset, as if a cable were unplugged.
func isolate(ctx context.Context, isolated bool, ports ...string) error {
	value := map[bool]string{true: "on", false: "off"}[isolated]
	for _, port := range ports {
		args := strings.Fields("-n " + hub + " link set dev " + port + " isolated " + value)
		if _, err := (command{name: "bridge", args: args}).run(ctx); err != nil {
			return err
		}
	}
	return nil
}
