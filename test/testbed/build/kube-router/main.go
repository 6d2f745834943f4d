// Kube-router enforces the NetworkPolicies of pods on a node. It has only the firewall of kube-router, so that it builds
// fast.
package main

import (
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "of an administrator")
	node := flag.String("hostname-override", "", "the name of the Node")
	services := flag.String("service-cluster-ip-range", "", "the addresses of Services")
	health := flag.String("healthz-bind-address", "", "where /healthz answers when the controller runs")
	flag.Parse()
	config := options.NewKubeRouterConfig()
	config.EnableIPv4, config.RunFirewall = true, true
	config.HostnameOverride, config.ClusterIPCIDRs = *node, []string{*services}
	if err := run(*kubeconfig, *health, config); err != nil {
		log.Fatal(err)
	}
}

func run(kubeconfig, health string, config *options.KubeRouterConfig) error {
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, namespaces := factory.Core().V1().Pods().Informer(), factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	iptables, ipset, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &sync.Mutex{}, iptables, ipset)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: controller.PodEventHandler, namespaces: controller.NamespaceEventHandler, policies: controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats {
		}
	}()
	var wg sync.WaitGroup
	wg.Add(1)
	go controller.Run(beats, stop, &wg)
	http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	go func() { log.Fatal(http.ListenAndServe(health, nil)) }()

	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
	close(stop)
	wg.Wait()
	return nil
}
