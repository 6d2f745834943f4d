package check

// Before are the checks before anything is applied.
func Before() []Check {
	return []Check{
		{
			ID: "KCP001", Category: catClusters, Title: "the API server of every cluster answers", run: eachCluster(answers),
			Explanation: "Every cluster of the setup is asked for its version, with the kubeconfig and context that the setup names.",
			Fix:         "correct the kubeconfig and context under spec.clusters, or start the cluster",
		},
		{
			ID: "KCP002", Category: catNamespace, Title: "the user may do all that up does", run: eachCluster(mayApply), Needs: []string{"KCP001"},
			Explanation: "Up reads, applies and deletes objects in the setup's namespace, holds a Lease, and reaches pods by " +
				"port-forward. Each of these permissions is asked for by a SelfSubjectAccessReview. Only if the namespace does not " +
				"exist yet is a permission needed that concerns the whole cluster: to create it.",
			Fix: "ask an administrator of the cluster for the permissions; the role admin has all that concern a namespace",
		},
		{
			ID: "KCP003", Category: catNamespace, Title: "the Kubernetes version is one that works", run: eachCluster(version), Needs: []string{"KCP001"},
			Explanation: "kcpctl needs Kubernetes " + oldestKubernetes + " or newer, and is tested with releases up to " + newestKubernetes + ".",
			Fix:         "upgrade the cluster; one that is newer than what kcpctl was tested with is likely to work",
		},
		{
			ID: "KCP004", Category: catNamespace, Title: "the clocks of clusters and this machine agree", run: eachCluster(clock), Needs: []string{"KCP001"},
			Explanation: "kcpctl issues certificates with this machine's clock, and the components verify them with theirs. The Date " +
				"header of the API server's answer says what time it is there. A minute is worth a warning; certificates begin five " +
				"minutes before they are issued, so more than that makes new ones invalid.",
			Fix: "synchronise the clock of this machine, or of the cluster's nodes (NTP)",
		},
		{
			ID: "KCP005", Category: catNamespace, Title: "the PKI store can be read", run: storeReadable, Needs: []string{"KCP001"}, Thorough: true,
			Explanation: "The certificate authorities of a setup are in its PKI store: a Secret of the home cluster, or a folder. " +
				"If it cannot be read, nothing can be issued, and nothing must be: a second authority would cut off what trusts the first.",
			Fix: "restore the store from a backup (kcpctl certs import)",
		},
		{
			ID: "KCP011", Category: catNamespace, Title: "Secrets and ConfigMaps that the setup refers to exist", run: references, Needs: []string{"KCP001"},
			Explanation: "What the setup file and its overlays refer to, such as the credentials of an external etcd or pull secrets, " +
				"has to be there before a pod can start, with the keys that are used of it.",
			Fix: "create what is missing, or correct the setup file",
		},
		{
			ID: "KCP012", Category: catNamespace, Title: "the storage classes of new volumes exist", run: eachCluster(storage), Needs: []string{"KCP001"}, Thorough: true,
			Explanation: "Managed and embedded etcds keep their data in volumes of the storage class that the setup names, or of the " +
				"cluster's default class. Without it their pods stay Pending.",
			Fix: "name a class that exists in etcd.managed.storageClassName, or mark one as the default of the cluster",
		},
		{
			ID: "KCP013", Category: catNamespace, Title: "the quota of the namespace has room", run: eachCluster(quota), Needs: []string{"KCP001"}, Thorough: true,
			Explanation: "What is new in the setup is added up (pods with their requests and limits, volumes, objects) and compared " +
				"with what every ResourceQuota of the namespace has left. Quotas with scopes are left out.",
			Fix: "raise the quota, or lower replicas and resources in the setup file",
		},
		{
			ID: "KCP014", Category: catNamespace, Title: "the namespace admits the setup's pods", run: eachCluster(admission), Needs: []string{"KCP001"}, Thorough: true,
			Explanation: "A Deployment is accepted whatever its pods look like, and then has none. So a pod of each new or changed " +
				"workload is created in a dry run: pod security (the label pod-security.kubernetes.io/enforce), LimitRanges and " +
				"webhooks answer as they will later. The pods of kcpctl satisfy the level restricted unless an overlay says otherwise.",
			Fix: "change podTemplate in the setup file so that the namespace takes the pods, or the rule in the namespace",
		},
		{
			ID: "KCP015", Category: catNamespace, Title: "there are nodes that the image is built for", run: eachCluster(architecture), Needs: []string{"KCP001"}, Thorough: true,
			Explanation: "kcp publishes its image for linux/amd64 and linux/arm64. Nodes may only be read by some users, and what other " +
				"images are built for is not known: the check is skipped then.",
			Fix: "add nodes of one of these architectures, or use an image that is built for yours",
		},
		{
			ID: "KCP016", Category: catNamespace, Title: "node ports and host ports are free", run: eachCluster(occupied), Needs: []string{"KCP001"}, Thorough: true,
			Explanation: "An overlay can ask for a node port of a Service, or for a port of the nodes themselves. The check looks for " +
				"other Services and pods that have it.",
			Fix: "choose another port, or leave nodePort out so that Kubernetes picks one",
		},
		{
			ID: "KCP021", Category: catNetwork, Title: "external host names resolve", run: resolves, Thorough: true,
			Explanation: "Clients dial kcp, and clusters dial each other, by the host names of the setup file. They are looked up from " +
				"this machine, whose DNS need not be that of the clients: the check only warns. The addresses of a load balancer may be " +
				"known only after the first up.",
			Fix: "create the DNS records once the Services have addresses: kcpctl status shows the URLs",
		},
		{
			ID: "KCP031", Category: catMachine, Title: "the state folder can be written to", run: onMachine(stateFolder),
			Explanation: "With --local, certificates, data, logs and ports of a setup are kept in a folder of the user.",
			Fix:         "set XDG_STATE_HOME to a folder that you can write to",
		},
		{
			ID: "KCP032", Category: catMachine, Title: "kcp's programs are of the right version", run: onMachine(programs),
			Explanation: "With --local, kcp's programs come from --kcp-bin-dir, from $PATH, or from the release, which up downloads.",
			Fix:         "give --kcp-bin-dir the folder with the programs of that release, or leave it out",
		},
		{
			ID: "KCP033", Category: catMachine, Title: "the ports are free", run: onMachine(freePorts),
			Explanation: "With --local, components listen on ports of the loopback interface. A port keeps its name once the setup has it.",
			Fix:         "stop what has the port, or choose other ports with --base-port",
		},
		{
			ID: "KCP034", Category: catMachine, Title: "kcp finds an address of the machine", run: onMachine(hostAddress), Thorough: true,
			Explanation: "When kcp starts it looks for an address under which others could reach it, that of the interface of the " +
				"default route, even where it listens on the loopback interface only and no flag asks for it. Without a default route " +
				"it ends at once: \"Unable to find suitable network address\". What runs already is not affected.",
			Fix: "connect the machine to a network, or give it a default route, which need not lead anywhere. On Linux: " +
				"ip link add kcp0 type dummy; ip address add 192.0.2.1/24 dev kcp0; ip link set kcp0 up; ip route add default dev kcp0",
		},
	}
}
