// Customserver serves virtual workspaces as a user's own server does. It answers two paths: one with the user whose
// identity a front-proxy passes on, one with the workspaces that its own kubeconfig can list.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	flags := map[string]string{}
	set := flag.NewFlagSet("customserver", flag.ExitOnError)
	for _, arg := range os.Args[1:] {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if set.Lookup(name) == nil {
			set.Func(name, "", func(value string) error { flags[name] = value; return nil })
		}
	}
	err := set.Parse(os.Args[1:])
	if err == nil {
		err = serve(flags)
	}
	log.Fatal(err)
}

// serve serves with the files of flags that servers of virtual workspaces have.
func serve(flags map[string]string) error {
	ca, err := os.ReadFile(flags["requestheader-client-ca-file"])
	if err != nil {
		return err
	}
	proxies := x509.NewCertPool()
	proxies.AppendCertsFromPEM(ca)
	config, err := clientcmd.BuildConfigFromFlags("", flags["kubeconfig"])
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("/services/custom/user", func(w http.ResponseWriter, r *http.Request) {
		if err := fromProxy(r, proxies); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		fmt.Fprint(w, r.Header.Get("X-Remote-User"))
	})
	mux.HandleFunc("/services/custom/workspaces", func(w http.ResponseWriter, _ *http.Request) {
		resp, err := client.Get(config.Host + "/apis/tenancy.kcp.io/v1alpha1/workspaces")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})
	server := &http.Server{
		Addr: net.JoinHostPort(flags["bind-address"], flags["secure-port"]), Handler: mux,
		TLSConfig: &tls.Config{ClientAuth: tls.RequestClientCert},
	}
	return server.ListenAndServeTLS(flags["tls-cert-file"], flags["tls-private-key-file"])
}

// fromProxy returns an error unless a request is from a front-proxy.
func fromProxy(r *http.Request, proxies *x509.CertPool) error {
	if len(r.TLS.PeerCertificates) == 0 {
		return errors.New("no certificate of a front-proxy")
	}
	_, err := r.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: proxies, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}
