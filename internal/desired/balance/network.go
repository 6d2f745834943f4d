package balance

import "math"

// network is a flow network from the workspaces to the shards. The cheapest flow of all workspaces is the plan.
type network struct {
	source, sink int
	classes      int
	arcs         []arc
	from         [][]int // the arcs of each node
}

// arc is followed by the one in the opposite direction.
type arc struct{ to, left, price int }

func newNetwork(classes, shards int) *network {
	nodes := classes + shards + 2
	return &network{source: nodes - 2, sink: nodes - 1, classes: classes, from: make([][]int, nodes)}
}

func (n *network) class(i int) int { return i }
func (n *network) shard(i int) int { return n.classes + i }

func (n *network) add(from, to, capacity, price int) {
	n.from[from] = append(n.from[from], len(n.arcs))
	n.from[to] = append(n.from[to], len(n.arcs)+1)
	n.arcs = append(n.arcs, arc{to, capacity, price}, arc{from, 0, -price})
}

// flow returns how much flows between two nodes.
func (n *network) flow(from, to int) int {
	sum := 0
	for _, a := range n.from[from] {
		if n.arcs[a].to == to && a%2 == 0 {
			sum += n.arcs[a+1].left
		}
	}
	return sum
}

// solve sends as much as it can from the source to the sink, on the cheapest paths one after another. Then the whole
// flow is the cheapest one of its size.
func (n *network) solve() {
	for {
		by := n.cheapest()
		if by == nil {
			return
		}
		amount := math.MaxInt
		for at := n.sink; at != n.source; at = n.arcs[by[at]^1].to {
			amount = min(amount, n.arcs[by[at]].left)
		}
		for at := n.sink; at != n.source; at = n.arcs[by[at]^1].to {
			n.arcs[by[at]].left -= amount
			n.arcs[by[at]^1].left += amount
		}
	}
}

// cheapest returns the arc by which the cheapest path to the sink enters each of its nodes, or nil if no path is left
// (Bellman-Ford: prices can be negative).
func (n *network) cheapest() []int {
	const far = math.MaxInt / 2
	price, by := make([]int, len(n.from)), make([]int, len(n.from))
	for i := range price {
		price[i] = far
		by[i] = -1
	}
	price[n.source] = 0
	for changed := true; changed; {
		changed = false
		for node, arcs := range n.from {
			for _, a := range arcs {
				if to := n.arcs[a]; to.left > 0 && price[node] < far && price[node]+to.price < price[to.to] {
					price[to.to] = price[node] + to.price
					by[to.to] = a
					changed = true
				}
			}
		}
	}
	if by[n.sink] < 0 {
		return nil
	}
	return by
}
