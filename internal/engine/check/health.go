package check

import (
	"context"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/agent"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
)

// Health are the checks of a running setup.
var Health = []Check{
	{
		ID: "KCP101", Category: catComponents, Title: "every component is ready",
		run: componentsReady,
		Explanation: "Every replica of every component is up to date and passes its readiness probe. The checks " +
			"that follow ignore components that are not ready.",
		Fix: "run kcpctl status, which prints the next command; kcpctl logs COMPONENT shows why a component does not " +
			"become ready",
	},
	{
		ID: "KCP102", Category: catComponents, Title: "/readyz of every component passes",
		run: readyz,
		Explanation: "Every kcp server is asked for /readyz?verbose, and every managed etcd for /health, through " +
			"the runtime: by port-forward on a cluster. The failing parts are listed.",
		Fix: "see kcpctl logs COMPONENT: the failing part logs the reason; for ALARM NOSPACE of an etcd, see " +
			"kcpctl explain KCP103; for ALARM CORRUPT, kcpctl etcd members shows the member, which kcpctl etcd " +
			"replace-member POD replaces",
	},
	{
		ID: "KCP103", Category: catComponents, Title: "managed etcds have room",
		run: room,
		Explanation: "The size of the database of every managed etcd is compared with its quota (etcd.managed.quota, " +
			"by default 2 GiB). At the quota, etcd accepts no more writes, and nothing in the workspaces of the " +
			"shard can be created or changed, until the alarm NOSPACE is disarmed, even if the quota is raised " +
			"(KCP102 reports the alarm). Deleted objects count until the database is defragmented.",
		Fix: "below the quota, raise etcd.managed.quota and run kcpctl up, which restarts the etcd; or delete " +
			"objects and ten minutes later, when kcp has compacted the etcd, defragment one member after the other, " +
			"the leader last, and wait before each until kcpctl etcd members shows that all are healthy: " +
			"kubectl exec -n NAMESPACE POD -- etcdctl defrag --command-timeout=5m; at the quota, do one of the two, " +
			"but compact the etcd first, which kcp cannot do then, and end with: kubectl exec -n NAMESPACE POD -- " +
			"etcdctl alarm disarm; see Defragmentation in docs/production.md",
	},
	{
		ID: "KCP111", Category: catConnections, Title: "every server presents its own certificate",
		run: presents,
		Explanation: "The certificate that each server presents is compared with the one in its Secret. If they " +
			"differ, the server has not reloaded its files, or a component in between terminates TLS, " +
			"such as a service mesh.",
		Fix: "run kcpctl up; if the certificate stays the same, restart the component, or remove the proxy" +
			" in between (TLS passthrough)",
	},
	{
		ID: "KCP112", Category: catConnections, Title: "clients and servers accept each other",
		run: pairs,
		Explanation: "kcpctl acts as each client of the setup: with its certificate, at the URL that it uses, with" +
			" the authorities that it trusts. The server must know the client: a response for " +
			"system:anonymous means that it does not. In a setup with very many shards not every pair is " +
			"tried, but every client and every server is part of one.",
		Fix: "run kcpctl up, which applies the certificates and authorities of the PKI store and rolls the" +
			" components that use them; if nothing answers, check the network between this machine and the" +
			" API server of the cluster",
	},
	{
		ID: "KCP113", Category: catConnections, Title: "external URLs lead to the setup",
		run: externalURLs,
		Explanation: "kcpctl connects from this machine to every external URL that resolves here. If the " +
			"certificate there is not the component's own, something in between terminates TLS (a load " +
			"balancer, an ingress, a corporate proxy), and client certificates never reach kcp. If the setup file " +
			"does not have the authority of a user-supplied certificate, clients may know it although this machine " +
			"does not: that is a warning.",
		Fix: "configure the load balancer or ingress for TLS passthrough to the component's Service, and " +
			"check that it points there",
	},
	{
		ID: "KCP114", Category: catConnections, Title: "components can connect to components of other clusters",
		run: reachable, limit: probeLimit,
		Explanation: howReached +
			" The table shows the clients of each address, and the purpose. Addresses that only mounted " +
			"workspaces need are a warning. Addresses of clients outside of the clusters are tried from this machine.",
		Fix: fixReach,
	},
	{
		ID: "KCP115", Category: catConnections, Title: "groups of issuers have a prefix",
		run: issuersOfGroups,
		Explanation: "The claim with the groups of a user must have a prefix in the setup file. Without one, everybody who " +
			"can change groups at the issuer can become an administrator of kcp: front-proxies do not remove the group " +
			"system:kcp:admin, and shards remove no group. Groups from CEL expressions are not examined.",
		Fix: "set groupsPrefix, or the prefix of claimMappings.groups, and change the names of groups " +
			"in ClusterRoleBindings",
	},
	{
		ID: "KCP116", Category: catConnections, Title: "front-proxies keep their metrics to themselves",
		run: openMetrics,
		Explanation: "kcpctl asks every external URL of a front-proxy that resolves here for /metrics, without " +
			"credentials. A front-proxy that authenticates no tokens lets such requests pass, and its metrics contain " +
			"the names of shards and the numbers of their logical clusters and requests. Other paths are refused.",
		Fix: "set authentication.serviceAccounts: true for the front-proxy, which then refuses requests without " +
			"credentials, and tokens that it does not know; or let only trusted networks reach it",
	},
	{
		ID: "KCP121", Category: catKcp, Title: "every shard is registered with its URLs",
		run: registration,
		Explanation: "The root shard is asked for its Shard objects. A shard that is not registered gets no " +
			"workspaces, and one that is registered with other URLs than the setup's is unreachable. " +
			"Shards that are not part of the setup are a warning.",
		Fix: "run kcpctl up, and kcpctl restart shard/NAME if nothing changes: a shard registers when it starts; " +
			"kcpctl logs shard/NAME shows why a shard does not register; delete the Shard object of a shard that " +
			"no longer exists",
	},
	{
		ID: "KCP122", Category: catKcp, Title: "every shard accepts new workspaces",
		run: schedulable,
		Explanation: "A cordoned shard keeps its workspaces and gets no new ones. If all shards are cordoned, no " +
			"workspace can be created.",
		Fix: "run kcpctl uncordon NAME, or ignore this if the shard is cordoned on purpose",
	},
	{
		ID: "KCP123", Category: catKcp, Title: "the cache is in sync",
		run: caches,
		Explanation: "Shards see each other's APIs through the cache server. The objects that each shard has to " +
			"replicate (APIExports, APIResourceSchemas) are compared with those in the cache, and the " +
			"shards in the cache with the registered ones.",
		Fix: "wait a moment and check again; if it still fails, see kcpctl logs cache-server and the logs " +
			"of the shard",
	},
	{
		ID: "KCP124", Category: catKcp, Title: "the URLs of endpoint slices answer",
		run: endpoints,
		Explanation: "Every shard serves kcp's own APIs to their provider, at the URLs in the " +
			"APIExportEndpointSlices of the workspace root. Each URL must belong to a shard of the setup," +
			" and that shard must answer.",
		Fix: "if the URL belongs to a shard that was removed, run kcpctl remove-shard NAME, which also " +
			"removes the URL; otherwise see the logs of the shard",
	},
	{
		ID: "KCP125", Category: catKcp, Title: "the shards agree about workspaces",
		run: workspaces, limit: time.Minute,
		Explanation: "A workspace is a Workspace object on one shard, and a LogicalCluster on another or the same " +
			"one. After shards were restored from different moments, one of the two can be without the other. kcp " +
			"does not repair that. A workspace that an interrupted run was moving to another shard may refuse " +
			"requests until a run completes the move.",
		Fix: "kcpctl restore repair lists the workspaces, and repairs them; kcpctl move WORKSPACE --to SHARD " +
			"completes moves",
	},
	{
		ID: "KCP131", Category: catCertificates, Title: "no certificate is about to expire",
		run: expiry,
		Explanation: "kcpctl up renews certificates that expire within 30 days; nothing renews them between two " +
			"runs. Certificate authorities are not renewed automatically. The warning comes when new certificates would expire with " +
			"the authority: a year before its end by default, and no earlier than in the last third of its lifetime. An authority that " +
			"has expired cannot be rotated.",
		Fix: "run kcpctl certs renew or kcpctl up; for a certificate authority kcpctl certs rotate-ca, " +
			"or kcpctl up --replace-authorities if it has expired",
	},
	{
		ID: "KCP132", Category: catCertificates, Title: "the certificates in the store fit together",
		run: fits,
		Explanation: "Every connection of the setup is verified offline, from the PKI store and the rendered objects: " +
			"each client trusts the certificate that is served at its URL, with the bundle that it mounts, and each " +
			"server accepts the client's certificate.",
		Fix: "run kcpctl up, which issues certificates that are missing or do not fit",
	},
	{
		ID: "KCP133", Category: catCertificates, Title: titleStore,
		run: storeOfInstallation, Explanation: howStore, Fix: fixStore,
	},
	{
		ID: "KCP141", Category: catAgentsHealth, Title: "every agent works",
		run: eachAgent(agentLeads),
		Explanation: "One replica of an agent holds a Lease in the agent's namespace and renews it every two seconds. An agent that does " +
			"not reach its cluster, or whose certificate has expired, stops to renew it. Agents that are " +
			"paused are left out.",
		Fix: "see kcpctl logs agent/NAME; for an expired certificate run kcpctl certs renew agent/NAME",
	},
	{
		ID: "KCP142", Category: catAgentsHealth, Title: "agents have published their resources",
		run: eachAgent(agentPublishes),
		Explanation: "An agent makes an APIResourceSchema from each published kind, and adds it to the APIExport. If the definition of " +
			"the kind has changed, the agent makes a new one. Another agent of the same APIExport, such as one that was started by hand, " +
			"writes to it in turn with this one.",
		Fix: "see kcpctl logs agent/NAME: the agent logs why it cannot convert or publish a kind; stop another agent " +
			"of the APIExport",
	},
	{
		ID: "KCP143", Category: catAgentsHealth, Title: "consumers have accepted the claims of agents, and no others",
		run: eachAgent(agentAccepted),
		Explanation: "An agent claims access to objects of its consumers, such as events, namespaces and related Secrets. The claims follow from " +
			"its PublishedResources. In a workspace that has not accepted all of them, it synchronizes nothing, or not everything. An agent may " +
			"change its APIExport, so a client with its certificate can add claims. Up does not accept these. The message has the field manager " +
			"that wrote them. The APIExport and the workspaces of bind are looked at.",
		Fix: "run kcpctl up, which accepts the claims that follow from the setup in the workspaces of bind, and takes back those that it accepted " +
			"earlier; find out who wrote other claims, and remove them from the APIExport and the APIBindings",
	},
	{
		ID: "KCP144", Category: catAgentsHealth, Title: "every shard serves the agents",
		run: eachAgent(agentServed),
		Explanation: "An agent watches a URL of each shard that has consumers. kcpctl requests what the agent requests first, with the " +
			"certificate of the agent, through the runtime. An agent that could not reach a shard when it appeared does not try again " +
			"until it is restarted: its log shows that.",
		Fix: "see the logs of the shard and kcpctl logs agent/NAME; when the shard answers, run kcpctl up, which restarts agents that do " +
			"not watch it",
	},
	{
		ID: "KCP145", Category: catAgentsHealth, Title: "agents release deleted objects",
		run: eachAgent(eachEndpoint(agentCleansUp)),
		Explanation: "A synchronized object, and a related object that the agent copies from a workspace, keeps the finalizer " + agent.Finalizer +
			" until the agent has deleted its copy. If that takes more than five minutes, the copy has finalizers of its own, or the agent " +
			"does not notice the deletion: of an object whose labels no longer match the filter of its " +
			"PublishedResource, or of a related object without watch, or to which its object no longer refers.",
		Fix: "look at the copy on the cluster of the agent, and at its finalizers; see kcpctl logs agent/NAME; remove the finalizer from a " +
			"related object to which nothing refers; give an object labels that match the filter",
	},
	{
		ID: "KCP151", Category: catWorkloads, Title: "admission policies protect objects and clusters",
		run: inCompute(guarded),
		Explanation: "kcp loses items of lists, such as containers, in the patches that kubectl apply, set, edit, patch and rollout send for " +
			"built-in types. The controller writes ValidatingAdmissionPolicies and their bindings for all published APIs into the compute " +
			"workspace, so that they are refused in all workspaces. Another one refuses objects with the label of a cluster that not every workspace may use, and another one changes that no syncer makes. " +
			"The live ones are compared with those.",
		Fix: "see kcpctl logs workloads/controller: the controller writes them again when they are deleted or changed",
	},
	{
		ID: "KCP152", Category: catWorkloads, Title: "every physical cluster is ready",
		run: clustersReady,
		Explanation: "The Cluster object of each cluster of spec.workloads must be Ready, and its APIs must be published. A cluster is " +
			"not ready if its syncer sends no heartbeats, or does not reach its API server. After spec.workloads.clusters[].evictAfter, " +
			"other clusters run its share, too.",
		Fix: "correct what the message says, and run kcpctl up, which renews the credential of the syncer; see " +
			"kcpctl logs workloads/controller",
	},
	{
		ID: "KCP153", Category: catWorkloads, Title: "physical clusters can serve the published APIs",
		run: inCompute(compatible),
		Explanation: "Objects of an API are not scheduled to a cluster where they would be refused or lose fields: the API is Incompatible " +
			"there. The message has the path of the field. It is a warning if another cluster serves the API, or if " +
			"it is not known what a cluster serves.",
		Fix: "upgrade the cluster or its CustomResourceDefinition, or accept a narrower schema with the command that " +
			"kcpctl workloads apis prints",
	},
	{
		ID: "KCP154", Category: catWorkloads, Title: "every workload is placed, and no leaf is orphaned",
		run: inCompute(placed),
		Explanation: "The controller makes a leaf of each workload, such as a Deployment, for each cluster where it runs. A workload without a " +
			"leaf after a minute runs nowhere: the message has the reason. kcp deletes leaves with their roots. A leaf whose root or whose Cluster " +
			"does not exist keeps running. All objects of the published APIs are listed on every shard.",
		Fix: "correct what the message says; for leaves without a root, see kcpctl logs " +
			"workloads/controller and delete them",
	},
	{
		ID: "KCP155", Category: catWorkloads, Title: "syncers may write the published APIs in their clusters",
		run: inCompute(syncerMayWrite),
		Explanation: "The ClusterRole of the syncer in each physical cluster must grant everything that the syncer does with the published APIs. An API " +
			"that was removed from spec.workloads.apis stays published, but nothing of it is synced. Clusters that " +
			"do not answer are skipped.",
		Fix: "run kcpctl up, which restores the ClusterRole",
	},
	{
		ID: "KCP156", Category: catWorkloads, Title: "each cluster can read its objects in every workspace",
		run: inCompute(bound),
		Explanation: "In each workspace that uses the published APIs, the controller creates an APIBinding of the APIExport of each cluster. Through it, " +
			"the syncer sees the objects with the label of its cluster, as soon as kcp has applied the claims.",
		Fix: "wait some seconds, because the controller retries; then see kcpctl logs workloads/controller and the " +
			"conditions of the APIBinding",
	},
}

// expiry looks for certificates that have expired or are due.
func expiry(_ context.Context, s *Subject) (o outcome) {
	if len(s.state.CAs) == 0 {
		return skipped("the PKI store is empty")
	}
	list, err := pki.ListOf(s.Topology, s.state)
	if err != nil {
		return fromError(err)
	}
	for _, it := range list.Items {
		if it.Info == nil || it.Role == pki.RolePrevious {
			continue
		}
		left, day := it.NotAfter.Sub(s.Now()), it.NotAfter.UTC().Format(time.DateOnly)
		switch {
		case left <= 0:
			o.fail("%s expired on %s", it.Name, day)
		case it.IsDue(s.Now()): // 30 days before the end, later for certificates that live less than 90 days
			o.warn("%s expires on %s, in %d days", it.Name, day, left/(24*time.Hour))
		}
	}
	return o
}

// fits verifies every connection from the store alone.
func fits(ctx context.Context, s *Subject) outcome {
	if len(s.state.CAs) == 0 {
		return skipped("the PKI store is empty")
	}
	if len(s.facts.Unreachable) > 0 {
		return s.unknownHere("what")
	}
	if expiry(ctx, s).status == Fail {
		return skipped("not examined: certificates have expired (KCP131)")
	}
	return fromError(render.Prove(s.Topology, s.state, s.Now()))
}
