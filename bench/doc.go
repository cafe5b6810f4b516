// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Bench measures the log against references that do the least there is to do,
// in the same run, and says where it stays behind the bars it was given.
//
//	make bench                                  everything, a few minutes
//	go run ./bench -only append,grpc -rounds 9  parts of it
//	go run ./bench -only drain -backlog 2GiB
//	go run ./bench -only recovery -log 4GiB
//
// It ends with exit code 1 when a bar was missed, and 0 when all were reached
// or the machine was too noisy to tell; see package trial for how that is
// decided. Use a quiet machine and a directory on the disk that matters
// (-dir).
//
// What can be counted instead of timed is a test of this package; what needs
// the inside of a package is a benchmark there. docs/performance.md has
// results, with their conditions, and what they mean.
package main
