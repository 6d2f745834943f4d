package check

import "github.com/kcpctl/kcpctl/internal/desired/topology"

// howReached and fixReach explain the checks of reachability.
const (
	howReached = "Shards, front-proxies, servers of virtual workspaces and the cache server dial each other, across clusters " +
		"by their external addresses. Every address that leads out of a cluster, to an external etcd, to an issuer of tokens " +
		"or to a webhook for tokens, is tried from inside, by a pod of kcp's image with the node and network settings of a component. It lives for some " +
		"seconds. Services of the same cluster need no test."
	fixReach = "open the route: correct the url in the setup file, the DNS entries that the cluster uses, firewalls, " +
		"NetworkPolicies for egress, or the load balancer"
)

// titleStore, howStore and fixStore explain the checks of the PKI store.
const (
	titleStore = "the PKI store belongs to the installation"
	howStore   = "The record of the installation has the fingerprints of its certificate authorities and " +
		"service-account keys, and knows which authorities had their private keys in the PKI store. With other " +
		"authorities, or with an empty store, everything that trusts the current ones would be cut off, so up " +
		"refuses the store. Without the private key of an authority, nothing can be issued or renewed with it. " +
		"An authority that was imported without its key is not reported."
	fixStore = "restore the store from a backup with kcpctl certs import, or use the one that the setup was applied " +
		"with (--pki-dir, spec.pki)"
)

// Preflight are the checks before anything is applied.
var Preflight = []Check{
	{
		ID: "KCP001", Category: catClusters, Title: "the API server of every cluster answers",
		run: allAnswer,
		Explanation: "Every cluster of the setup is asked for its version, with the kubeconfig and context from " +
			"the setup file.",
		Fix: "correct the kubeconfig and context under spec.clusters, or start the cluster",
	},
	{
		ID: "KCP002", Category: catNamespace, Title: "the user has the required permissions",
		run: eachCluster(mayApply), Needs: []string{"KCP001"},
		Explanation: "Up reads, applies and deletes objects in the setup's namespace, holds a Lease, and connects " +
			"to pods by port-forward. A SelfSubjectAccessReview tests each permission. A cluster-wide " +
			"permission is needed only to create the namespace, if it does not exist yet. KCP045 has those of agents.",
		Fix: "ask an administrator of the cluster for the permissions; the role admin includes all " +
			"permissions within a namespace",
	},
	{
		ID: "KCP003", Category: catNamespace, Title: "the Kubernetes version is supported",
		run: eachCluster(version), Needs: []string{"KCP001"},
		Explanation: "kcpctl needs Kubernetes " + oldestKubernetes + " or newer, and is tested with releases up to " +
			newestKubernetes + ".",
		Fix: "upgrade the cluster; a release newer than the ones kcpctl was tested with is likely to work",
	},
	{
		ID: "KCP004", Category: catNamespace, Title: "the clocks of the clusters and this machine agree",
		run: eachCluster(clock), Needs: []string{"KCP001"},
		Explanation: "kcpctl issues certificates with this machine's clock, and the components verify them with " +
			"theirs. The cluster's time is the Date header of the API server's response. A difference of " +
			"more than a minute is a warning. Certificates are valid from five minutes before they are " +
			"issued, so with a larger difference new certificates are invalid.",
		Fix: "synchronize the clock of this machine, or of the cluster's nodes (NTP)",
	},
	{
		ID: "KCP005", Category: catNamespace, Title: "the PKI store can be read",
		run: storeReadable, Needs: []string{"KCP001"}, Thorough: true,
		Explanation: "The certificate authorities of a setup are kept in its PKI store: a Secret of the home " +
			"cluster, or a directory. If it cannot be read, kcpctl issues no certificates: a second " +
			"authority would cut off everything that trusts the first.",
		Fix: "restore the store from a backup (kcpctl certs import)",
	},
	{
		ID: "KCP006", Category: catNamespace, Title: titleStore,
		run: storeOfInstallation, Needs: []string{"KCP001"}, InPlan: true,
		Explanation: howStore, Fix: fixStore,
	},
	{
		ID: "KCP011", Category: catNamespace, Title: "the referenced Secrets and ConfigMaps exist",
		run: references, Needs: []string{"KCP001"},
		Explanation: "Secrets and ConfigMaps that the setup file and its overlays refer to, such as credentials of" +
			" an external etcd or pull secrets, must exist with the keys that are used, or pods do not " +
			"start.",
		Fix: "create what is missing, or correct the setup file",
	},
	{
		ID: "KCP012", Category: catNamespace, Title: "the storage classes of new volumes exist",
		run: eachCluster(storage), Needs: []string{"KCP001"}, Thorough: true,
		Explanation: "Managed and embedded etcds keep their data in volumes of the storage class named in the " +
			"setup file, or of the cluster's default class. Without it their pods stay Pending.",
		Fix: "name an existing class in etcd.managed.storageClassName, or mark one as the default of the " +
			"cluster",
	},
	{
		ID: "KCP013", Category: catNamespace, Title: "the quota of the namespace is sufficient",
		run: eachCluster(quota), Needs: []string{"KCP001"}, Thorough: true,
		Explanation: "The needs of all new objects are added up (pods with their requests and limits, volumes, " +
			"objects) and compared with what is left of every ResourceQuota of the namespace. Quotas with" +
			" scopes are ignored.",
		Fix: "raise the quota, or lower replicas and resources in the setup file",
	},
	{
		ID: "KCP014", Category: catNamespace, Title: "the namespace admits the setup's pods",
		run: eachCluster(admission), Needs: []string{"KCP001"}, Thorough: true,
		Explanation: "A cluster accepts a Deployment whose pods it rejects later. So a pod of each new or changed " +
			"workload is created in a dry run: pod security (the label " +
			"pod-security.kubernetes.io/enforce), LimitRanges and webhooks answer as they will later. The" +
			" pods of kcpctl satisfy the level restricted unless an overlay changes that.",
		Fix: "change podTemplate in the setup file so that the namespace admits the pods, or change the " +
			"rule of the namespace",
	},
	{
		ID: "KCP015", Category: catNamespace, Title: "the cluster has nodes of the image's architectures",
		run: eachCluster(architecture), Needs: []string{"KCP001"}, Thorough: true,
		Explanation: "kcp publishes its image for linux/amd64 and linux/arm64. The check is skipped if the user " +
			"may not list nodes, and for other images, whose architectures are unknown.",
		Fix: "add nodes of one of these architectures, or use an image that is built for yours",
	},
	{
		ID: "KCP016", Category: catNamespace, Title: "node ports and host ports are free",
		run: eachCluster(occupied), Needs: []string{"KCP001"}, Thorough: true,
		Explanation: "An overlay can set a node port of a Service, or a port of the nodes themselves. The check " +
			"looks for other Services and pods that use it.",
		Fix: "choose another port, or remove nodePort so that Kubernetes chooses one",
	},
	{
		ID: "KCP017", Category: catNamespace, Title: "the cluster can expose components as the setup file says",
		run: eachCluster(exposed), Needs: []string{"KCP001"},
		Explanation: "Components can be exposed by an Ingress, by a TLSRoute of the Gateway API, or by a Route of " +
			"OpenShift. The API server must serve the kind. The Ingress class must exist, and the Gateway " +
			"needs a listener with the protocol TLS and the mode Passthrough. The class and the Gateway are" +
			" not checked if the user may not read them. With monitoring.prometheusOperator, the API server must" +
			" serve PodMonitors and PrometheusRules.",
		Fix: "install the controller of that kind, correct expose in the setup file, or choose another type",
	},
	{
		ID: "KCP018", Category: catNamespace, Title: "the front-proxies' own serving certificates are valid",
		run: eachCluster(ownServing), Needs: []string{"KCP001"},
		Explanation: "A front-proxy with serving presents the certificate in that Secret to clients of its external " +
			"hostname. The certificate must match its key, contain the hostname, be valid now, and be issued by " +
			"the ca in the setup file, because kubeconfigs have only that. Without a ca, the check verifies it " +
			"with the authorities of this machine and only warns, because those of clients may differ.",
		Fix: "correct the Secret, or serving.ca in the setup file",
	},
	{
		ID: "KCP021", Category: catNetwork, Title: "external host names resolve",
		run: resolves, Thorough: true,
		Explanation: "Clients connect to kcp, and clusters to each other, by the host names in the setup file. The" +
			" names are looked up from this machine, whose DNS may differ from that of the clients, so " +
			"the check only warns. The addresses of a load balancer may be known only after the first up.",
		Fix: "create the DNS records that kcpctl up shows once the Services have addresses",
	},
	{
		ID: "KCP024", Category: catReach, Title: "the clusters reach each other's components",
		run: reachable, Needs: []string{"KCP001", "KCP002"}, CreatesPods: true, limit: probeLimit,
		Explanation: howReached +
			" A component that does not run yet cannot answer, so until then a refused connection " +
			"passes, and everything else is a warning: a load balancer may get its address only with the first up. " +
			"Up asks after it has created the namespaces and before everything else, if there are several clusters. " +
			"Dry runs do not ask, because they create nothing.",
		Fix: fixReach,
	},
	{
		ID: "KCP031", Category: catMachine, Title: "the state directory is writable",
		run: onMachine(stateFolder),
		Explanation: "With --local, certificates, data, logs and ports of a setup are kept in a directory of the " +
			"user.",
		Fix: "make the state directory writable; before the first kcpctl up, you can also set XDG_STATE_HOME to a " +
			"directory that you can write to",
	},
	{
		ID: "KCP032", Category: catMachine, Title: "kcp's binaries have the right version",
		run: onMachine(programs),
		Explanation: "With --local, kcp's binaries come from --kcp-bin-dir, from $PATH, or from the release, which" +
			" up downloads. Whether that works is not known before, so the check is skipped if binaries are missing.",
		Fix: "set --kcp-bin-dir to the directory with the binaries of that release, or leave it out",
	},
	{
		ID: "KCP033", Category: catMachine, Title: "the ports are free",
		run: onMachine(freePorts),
		Explanation: "With --local, components listen on ports of the loopback interface. Once a port is assigned " +
			"to a component, it does not change.",
		Fix: "stop the process that has the port, or choose other ports with --base-port",
	},
	{
		ID: "KCP034", Category: catMachine, Title: "kcp finds an address of the machine",
		run: onMachine(hostAddress), Thorough: true,
		Explanation: "When kcp starts, it looks for an address under which other machines could connect to it: the" +
			" address of the interface of the default route. It does so even if it listens on the " +
			"loopback interface only, and no flag turns that off. Without a default route it exits " +
			"immediately: \"Unable to find suitable network address\". Running components are not " +
			"affected.",
		Fix: "connect the machine to a network, or add a default route, which need not lead anywhere. On " +
			"Linux: ip link add kcp0 type dummy; ip address add 192.0.2.1/24 dev kcp0; ip link set kcp0 " +
			"up; ip route add default dev kcp0",
	},
	{
		ID: "KCP041", Category: catAgents, Title: "the published resources of agents are valid",
		run: published,
		Explanation: "The api-syncagent notices most mistakes in a PublishedResource only when it synchronizes an object, and " +
			"then tells them to its log. kcpctl checks without a cluster, whenever it reads the setup file: templates with " +
			"the functions and fields that the agent has, regular expressions, label selectors, exactly one kind of mutation, " +
			"versions and how they are renamed, names of resources in kcp that collide, related resources, kinds that are " +
			"published twice, and fields of the wrong type. Expressions of CEL are left to the agent. What the agent accepts " +
			"but is probably a mistake is a note: fields that it does not have, names that two objects can have, related " +
			"resources of kcp without a watch.",
		Fix: "correct the PublishedResource at the file, line and column of the message",
	},
	{
		ID: "KCP042", Category: catAgents, Title: "the clusters of agents serve the kinds that agents publish",
		run: eachAgentCluster(publishable), Needs: []string{"KCP001"},
		Explanation: "An agent publishes the CustomResourceDefinitions of its cluster. Without one it waits, and logs the reason. The " +
			"cluster must serve each kind, and the versions that the setup file selects. Kinds of definitions in the setup file are " +
			"left out, because up creates these, and so are the built-in kinds of the core group.",
		Fix: "install the CustomResourceDefinition, add it to definitions of the agent, or correct the " +
			"PublishedResource",
	},
	{
		ID: "KCP043", Category: catAgents, Title: "the virtual workspaces of all shards have addresses for the agents",
		run: addressed(topology.Agent, "agent"),
		Explanation: "An agent dials the virtual workspace URL of every shard that has consumers, also from another cluster. There, the name of " +
			"a Service leads nowhere, or elsewhere: such a shard needs a virtualWorkspaceURL that the cluster of the agent can reach. kcpctl " +
			"demands one whenever it reads the setup file, and this check looks at its host. KCP024 tries the addresses, and KCP144 the " +
			"certificate of the agent.",
		Fix: "set virtualWorkspaceURL of the shard, or, if it has a server of virtual workspaces, url of this " +
			"server, to an address that other clusters reach",
	},
	{
		ID: "KCP044", Category: catAgents, Title: "the APIExports of agents belong to the setup",
		run: exportsOwned, Needs: []string{"KCP001"}, InPlan: true,
		Explanation: "An agent writes its resources and its claims to its APIExport without a look at who else does: with two agents, " +
			"each sees its own as complete. The APIExport must be missing, or have been created by kcpctl for this setup, and no other agent " +
			"may write its name to it. An agent that was removed leaves its name: this is a warning while no agent of " +
			"the setup runs that would write its own. Up finds an APIExport of others when it makes the plan, and " +
			"shows a conflict. Only check --pre runs this check, as far as kcp runs already.",
		Fix: "choose another apiExport or workspace for the agent, or remove the other agent; to take over an APIExport that no setup owns, " +
			"run kcpctl up --force-conflicts",
	},
	{
		ID: "KCP045", Category: catAgents, Title: "the user may create what agents need on their clusters",
		run: eachAgentCluster(mayApplyClusterScoped), Needs: []string{"KCP001"},
		Explanation: "An agent reads and writes objects in all namespaces of its cluster. Up therefore creates a ClusterRole and a " +
			"ClusterRoleBinding for it, its PublishedResources, which have no namespace, and CustomResourceDefinitions, unless they exist. " +
			"A SelfSubjectAccessReview tests each permission. Kubernetes lets a user create and bind a ClusterRole only with the verbs " +
			"escalate and bind, or with all permissions that the role grants. The role admin of a " +
			"namespace is not enough.",
		Fix: "ask an administrator of the cluster of the agent for the permissions; the role cluster-admin has them",
	},
	{
		ID: "KCP046", Category: catAgents, Title: "the keys of kcp are out of reach of agents",
		run: awayFromKeys, Needs: []string{"KCP001"},
		Explanation: "With pki.store Cluster, a Secret in the namespace of the root shard has the private keys of all certificate authorities. An agent " +
			"writes Secrets in its own namespace and reads those of all namespaces, because its cache cannot be restricted. A new agent in the " +
			"namespace of the keys is refused. One that runs there already is a warning, and so is an agent or " +
			"a syncer on the same Kubernetes cluster.",
		Fix: "add an item to spec.clusters for the agent, best of another Kubernetes cluster, or with a namespace of its own, such as " +
			"{name: agents, namespace: demo-agents}, and set cluster of the agent. An agent that runs is not moved: remove it with kcpctl agent remove " +
			"NAME and kcpctl up --orphan agent/NAME, which keeps all objects, and add it again on the other cluster, where it takes over the copies if " +
			"that is a namespace of the same Kubernetes cluster. With pki.store Directory, the keys are " +
			"not on the cluster",
	},
	{
		ID: "KCP051", Category: catPhysical, Title: "the user may register the physical clusters",
		run: registrable,
		Explanation: "Up creates a ServiceAccount, a ClusterRole and its binding for the syncer on each cluster of spec.workloads, with the context of " +
			"the setup file. The API server must answer, and the user must have the permissions: create and bind a ClusterRole only with the " +
			"verbs escalate and bind, or with all permissions that the role grants. Two names for the same cluster are refused, because the " +
			"objects of both would be in the same namespaces. They are compared by the UID of the namespace kube-system. A cluster that is " +
			"registered already and does not answer is a warning: up goes on without it.",
		Fix: "correct the context and the kubeconfig in spec.workloads.clusters, or ask an administrator of the cluster for the permissions; the role " +
			"cluster-admin has them",
	},
	{
		ID: "KCP052", Category: catPhysical,
		Title: "the virtual workspaces of all shards have addresses for the syncers",
		run:   addressed(topology.Physical, "syncer"),
		Explanation: "The syncer of a cluster whose syncMode is Pull dials a front-proxy, and the virtual workspace URL of every shard that has " +
			"workspaces with objects of the cluster. From another cluster, such a shard needs a virtualWorkspaceURL that this cluster can " +
			"reach. kcpctl demands one whenever it reads the setup file, and this check looks at its host. KCP024 " +
			"tries the addresses.",
		Fix: "set virtualWorkspaceURL of the shard, or, if it has a server of virtual workspaces, url of this " +
			"server, to an address that the physical cluster reaches",
	},
	{
		ID: "KCP053", Category: catPhysical, Title: "physical clusters have what their tenancy needs", Thorough: true,
		run: enforceable,
		Explanation: "Up writes tenancy.pods of a physical cluster as a ValidatingAdmissionPolicy there, which Kubernetes has since release 1.30. " +
			"Kubernetes gives pods without a PriorityClass the default one of the cluster, so the rules must permit it. Pods that name a " +
			"PriorityClass that does not exist are refused, and pods for which no node has the labels of the node selector stay Pending. What " +
			"the user of the kubeconfig may not list is skipped.",
		Fix: "correct spec.workloads.clusters[].tenancy.pods, or create the PriorityClasses and label the nodes; for a cluster with an older " +
			"Kubernetes, upgrade it or remove tenancy.pods",
	},
}
