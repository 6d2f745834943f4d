package long

// ephemeralShards are three shards that start quickly, and lose their data with their pods.
const ephemeralShards = `
  etcd: {embedded: {ephemeral: true}}
  shards: [{name: alpha}, {name: beta}]`
