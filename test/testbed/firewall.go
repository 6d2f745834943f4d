package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// firewall is the name of the process that enforces NetworkPolicies, and of its binary.
const firewall = "kube-router"

// firewallArgs are the arguments of kube-router for a node whose pods have another network plugin.
func (n node) firewallArgs() []string {
	return []string{
		"--kubeconfig=" + n.kubeconfig("admin"), "--hostname-override=" + n.hostname,
		"--service-cluster-ip-range=" + n.serviceCIDR, "--healthz-bind-address=" + n.address + ":20244",
	}
}

// runNetworkPolicies makes a running node enforce NetworkPolicies, or no longer.
func runNetworkPolicies(ctx context.Context, t *testbed, o *options) error {
	n, err := runningNode(o.node)
	if err != nil {
		return err
	}
	unlock, err := t.lock(ctx, "node-"+n.name)
	if err != nil {
		return err
	}
	defer unlock()
	switch {
	case slices.Equal(o.args, []string{"off"}):
		return n.enforceNothing(ctx)
	case !slices.Equal(o.args, []string{"on"}):
		return errors.New("use network-policies on or network-policies off")
	}
	if err := install(ctx, t.log, []requirement{ipset()}); err != nil {
		return err
	}
	if err := t.build(ctx, kubeRouterSet()); err != nil {
		return err
	}
	all := t.components(n)
	did, err := n.ensure(ctx, all[slices.IndexFunc(all, func(c component) bool { return c.name == firewall })].process)
	if err != nil {
		return err
	}
	t.log.note("%s: %s %s", n.name, firewall, did)
	return nil
}

// enforceNothing stops the firewall and empties its chains: it leaves its rules when it ends.
func (n node) enforceNothing(ctx context.Context) error {
	if err := n.recorded(firewall).end(ctx, 10*time.Second); err != nil {
		return err
	}
	for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		enter := "--net=/run/netns/" + n.id + " -- iptables --wait --flush KUBE-ROUTER-" + chain
		_, err := command{name: "nsenter", args: strings.Fields(enter)}.run(ctx)
		if err != nil && !strings.Contains(err.Error(), "No chain") { // it has never run
			return fmt.Errorf("empty the chains of %s: %w", firewall, err)
		}
	}
	return nil
}
