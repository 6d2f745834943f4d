package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// node is a Kubernetes cluster of one node. Its processes run in their own network namespace, so that they use no port,
// no iptables chain and no sysctl of the machine. The machine has routes to the pods and Services of each node. The
// nodes have no such routes to each other.
type node struct {
	name        string // a
	id          string // name of its network namespace and of its link
	hostname    string // name of the Node
	address     string
	podCIDR     string
	serviceCIDR string
	apiService  string // address of the Service kubernetes
	dnsService  string
	balancers   string // addresses for Services of type LoadBalancer
	state, run  string // directories; run is for sockets and files that must not survive a reboot
}

const apiPort = "6443" // at the address of the node

func nodes() []node {
	return []node{
		newNode("a", "10.213.0.2", "10.213.16.0/20", "10.213.32.0/20", "10.213.32.1", "10.213.32.10", "10.213.0.64/27"),
		newNode("b", "10.213.0.3", "10.213.48.0/20", "10.213.64.0/20", "10.213.64.1", "10.213.64.10", "10.213.0.96/27"),
		newNode("c", "10.213.0.4", "10.213.80.0/20", "10.213.96.0/20", "10.213.96.1", "10.213.96.10", "10.213.0.128/27"),
	}
}

func newNode(name, address, podCIDR, serviceCIDR, apiService, dnsService, balancers string) node {
	return node{
		name: name, id: "kcpctl-" + name, hostname: "testbed-" + name,
		address: address, podCIDR: podCIDR, serviceCIDR: serviceCIDR,
		apiService: apiService, dnsService: dnsService, balancers: balancers,
		state: filepath.Join("/var/lib/kcpctl-testbed", name),
		run:   filepath.Join("/run/kcpctl-testbed", name),
	}
}

// nodesNamed returns the node with a name, or all nodes for "all".
func nodesNamed(name string) ([]node, error) {
	var found []node
	for _, n := range nodes() {
		if name == n.name || name == "all" {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no node %q, there are a, b and c", name)
	}
	return found, nil
}

func oneNode(name string) (node, error) {
	found, err := nodesNamed(name)
	if err == nil && len(found) > 1 {
		err = fmt.Errorf("name one node, a, b or c")
	}
	if err != nil {
		return node{}, err
	}
	return found[0], nil
}

func (n node) url() string    { return "https://" + net.JoinHostPort(n.address, apiPort) }
func (n node) socket() string { return filepath.Join(n.run, "containerd.sock") }

// stateFile returns the path of a file or directory in the state directory.
func (n node) stateFile(parts ...string) string {
	return filepath.Join(append([]string{n.state}, parts...)...)
}

// prober returns a function that probes a health URL of the node. A unix:// socket is healthy if it accepts
// connections.
func (n node) prober() (func(context.Context, string) error, error) {
	ca, err := os.ReadFile(n.stateFile("pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true, Proxy: nil,
	}}
	return func(ctx context.Context, url string) error {
		socket, isSocket := strings.CutPrefix(url, "unix://")
		switch {
		case url == "":
			return nil
		case isSocket:
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
			if err == nil {
				conn.Close()
			}
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s says %s", url, response.Status)
		}
		return nil
	}, nil
}
