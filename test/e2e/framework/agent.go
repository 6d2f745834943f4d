package framework

const Widget = `apiVersion: services.example.com/v1
kind: Widget
metadata: {name: %s, namespace: default}
spec: {size: 3}
`
