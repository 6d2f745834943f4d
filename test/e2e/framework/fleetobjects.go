package framework

// WebObjects are a Deployment with everything that its pods use.
const WebObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {content: "%[1]s"}
---
apiVersion: v1
kind: Secret
metadata: {name: web}
stringData: {word: "secret of %[1]s"}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {rules: [{host: web.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: %[2]d
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: web
      containers:
      - name: web
        image: kcpctl.dev/testbed/web:v1
        ports: [{containerPort: 8080}]
        env:
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: SECRET, valueFrom: {secretKeyRef: {name: web, key: word}}}
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: config, mountPath: /config}]
      volumes: [{name: config, configMap: {name: web}}]
`

// otherKinds are objects of kinds other than Deployment.
const otherKinds = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: web, image: "kcpctl.dev/testbed/web:v1"}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: disk}
spec:
  replicas: 1
  serviceName: disk
  selector: {matchLabels: {app: disk}}
  template:
    metadata: {labels: {app: disk}}
    spec: {containers: [{name: web, image: "kcpctl.dev/testbed/web:v1", volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: each}
spec:
  selector: {matchLabels: {app: each}}
  template:
    metadata: {labels: {app: each}}
    spec: {containers: [{name: web, image: "kcpctl.dev/testbed/web:v1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  ttlSecondsAfterFinished: 1
  template:
    spec:
      restartPolicy: Never
      containers: [{name: web, image: "kcpctl.dev/testbed/web:v1", args: [once]}]
`

// site is an object of the kind Site.
const site = `
apiVersion: %s.example.com/v1
kind: Site
metadata: {name: front, annotations: {workloads.kcp.dev/spread: Single}}
spec: {owner: team, region: eu}
`

// chosen is a Deployment with an annotation about clusters.
const chosen = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, labels: {app: %[1]s}, annotations: {workloads.kcp.dev/%[2]s: "%[3]s"}}
spec:
  replicas: 3
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: web, image: "kcpctl.dev/testbed/web:v1"}]}
---`
