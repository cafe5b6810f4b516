// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Memory is the experiment behind the default of
// admission.max_in_flight_bytes: it overloads the built Collector with
// requests of several shapes, over several numbers of connections, at several
// budgets, in front of a destination that takes a second for every batch, and
// records what the process held at most, what it refused and what it took.
//
//	make bench-memory                              all of it, some minutes
//	go run ./bench/memory -budgets 64MiB,256MiB    parts of it
//	go run ./bench/memory -gomemlimit off          as the Go runtime comes
//
// The Go runtime is told to keep to the stated worst case: by itself it lets
// dead objects take as much again as what is alive, which no budget can bound.
//
// It fits RSS ≤ a · budget + b to the worst of each budget and compares every
// run with the worst case that the README states. Exit code 1: some run held
// more than that.
package main
