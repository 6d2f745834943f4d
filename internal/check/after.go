package check

// After are the checks of a setup that runs.
func After() []Check {
	return []Check{
		{
			ID: "KCP101", Category: catComponents, Title: "every component is ready", run: componentsReady,
			Explanation: "Every replica of every component is up to date and answers its readiness probe. What is not ready is left out " +
				"of the checks that follow.",
			Fix: "see kcpctl status and kcpctl logs COMPONENT; kcpctl up brings back what is missing",
		},
		{
			ID: "KCP102", Category: catComponents, Title: "/readyz of every component passes", run: readyz,
			Explanation: "Every kcp server is asked for /readyz?verbose, and every managed etcd for /health, through the runtime: a " +
				"port-forward on a cluster. The names of the parts that are not ready are shown.",
			Fix: "see kcpctl logs COMPONENT: the part that is not ready says why",
		},
		{
			ID: "KCP111", Category: catConnections, Title: "every server presents its own certificate", run: presents,
			Explanation: "Each server is dialled, and the certificate that it presents is compared with the one in its Secret. A server " +
				"that presents another has not read its files again, or something between terminates TLS, such as a service mesh.",
			Fix: "run kcpctl up; if the certificate stays, restart the component, or take the proxy out of the way (TLS passthrough)",
		},
		{
			ID: "KCP112", Category: catConnections, Title: "every client and server accept each other", run: pairs,
			Explanation: "Everyone in the setup who dials somebody else is played: with its certificate, at the name that it dials, " +
				"trusting what it trusts. The server has to know the client: an answer for system:anonymous means that it does not. " +
				"In a setup with very many shards so many pairs are tried that every client and every server is in one.",
			Fix: "run kcpctl up, which applies the certificates and authorities of the PKI store and rolls those who use them",
		},
		{
			ID: "KCP113", Category: catConnections, Title: "external URLs lead to the setup", run: externalURLs,
			Explanation: "Every URL that is dialled from outside is dialled from this machine, as far as it resolves here. If the " +
				"certificate there is not the component's own, something between terminates TLS (a load balancer, an ingress, a " +
				"corporate proxy), and client certificates never reach kcp.",
			Fix: "let the load balancer or ingress pass TLS through to the component's Service, and check that it points there",
		},
		{
			ID: "KCP121", Category: catKcp, Title: "every shard is registered with its URLs", run: registration,
			Explanation: "The root shard is asked for its Shard objects. A shard that is missing takes no workspaces, and one with " +
				"other URLs than the setup's cannot be reached. Shards that the setup does not have are told of.",
			Fix: "run kcpctl up, which waits for the registration; kcpctl logs shard/NAME says why a shard does not register; delete the " +
				"Shard object of one that is gone for good",
		},
		{
			ID: "KCP122", Category: catKcp, Title: "every shard takes new workspaces", run: schedulable,
			Explanation: "A cordoned shard keeps its workspaces, and gets no new ones. If all are cordoned no workspace can be made.",
			Fix:         "run kcpctl uncordon NAME, or leave it as it is if you want it so",
		},
		{
			ID: "KCP123", Category: catKcp, Title: "the cache is in sync", run: caches,
			Explanation: "Shards see each other's APIs through the cache server. What each shard has to put there (APIExports, " +
				"APIResourceSchemas) is compared with what is there, and the shards that the cache knows with those that are registered.",
			Fix: "wait a moment and check again; if it stays, see kcpctl logs cache-server and those of the shard",
		},
		{
			ID: "KCP124", Category: catKcp, Title: "the URLs of endpoint slices answer", run: endpoints,
			Explanation: "kcp's own APIs are served to their provider by every shard, at the URLs in the APIExportEndpointSlices of the " +
				"workspace root. Each URL has to be that of a shard of the setup, which is asked for it.",
			Fix: "if a URL is that of a shard which is gone, run kcpctl remove-shard NAME, which removes the URL too; else see the shard's logs",
		},
		{
			ID: "KCP131", Category: catCertificates, Title: "no certificate is about to expire", run: expiry,
			Explanation: "kcpctl up renews certificates that end within 30 days; nothing renews them between two runs. Authorities are not " +
				"renewed by themselves.",
			Fix: "kcpctl certs renew, or kcpctl up; for an authority kcpctl certs rotate-ca",
		},
		{
			ID: "KCP132", Category: catCertificates, Title: "the certificates in the store fit together", run: fits,
			Explanation: "Without asking anybody, every connection of the setup is proved from the PKI store: each client trusts the " +
				"certificate that is served at the URL it dials, and each server accepts the client's.",
			Fix: "run kcpctl up, which issues what is missing or does not fit any more",
		},
	}
}
