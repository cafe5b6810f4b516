// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports a child listens on must stay its own while it is down between two
// lives, so they are taken from below the range that outgoing connections use
// (32768 and up on Linux).
const (
	firstPort = 20000
	lastPort  = 32000
)

// FreePorts returns n different TCP ports of the loopback interface that
// nobody listens on.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	seen := map[int]bool{}
	for range 100 * n {
		p := firstPort + rand.IntN(lastPort-firstPort)
		if seen[p] {
			continue
		}
		seen[p] = true
		l, err := net.Listen("tcp", Loopback(p))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		if ports = append(ports, p); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports on the loopback interface")
}

// Loopback is the address of a port of the loopback interface.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
