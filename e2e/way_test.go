// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestA01_StockExporters sends every signal through every protocol, encoding
// and compression of the stock exporters: each item arrives unchanged, once,
// and in the order it was sent.
func TestA01_StockExporters(t *testing.T) {
	sink := newSink(t)
	n := newNode(t, nodeSettings{Sink: sink.Addr, Profiles: true, Delivery: "      consumers: 1"})
	n.start()
	routes := []route{
		{name: "grpc-plain", exporter: "compression: none"},
		{name: "grpc-gzip", exporter: "compression: gzip"},
		{name: "grpc-zstd", exporter: "compression: zstd"},
		{name: "grpc-snappy", exporter: "compression: snappy"},
		{name: "http-plain", exporter: "compression: none"},
		{name: "http-gzip", exporter: "compression: gzip"},
		{name: "http-zstd", exporter: "compression: zstd"},
		{name: "http-snappy", exporter: "compression: snappy"},
		{name: "http-deflate", exporter: "compression: deflate"},
		{name: "http-lz4", exporter: "compression: lz4"},
		{name: "http-json", exporter: "encoding: json\n    compression: none"},
		{name: "http-json-zstd", exporter: "encoding: json\n    compression: zstd"},
	}
	addrs := stock(t, n, true, routes)

	ledger := NewLedger()
	var sent [4][]ID
	for _, r := range routes {
		sender := newGRPC(t, addrs[r.name])
		for _, s := range []Signal{Logs, Traces, Metrics, Profiles} {
			for range 3 {
				b := ledger.Batch(s, 7)
				mustAck(t, ledger, sender, b)
				for id := range b.ids {
					sent[s] = append(sent[s], id)
				}
			}
		}
	}
	r := allArrive(t, ledger, sink)
	require.Zero(t, r.Duplicates, "nothing failed")
	for _, s := range []Signal{Logs, Traces, Metrics, Profiles} {
		require.Equal(t, sent[s], sink.Order(s), "order of %s with consumers: 1", s)
	}
	require.NoError(t, n.current.Stop(patience))
}

// TestA01_OwnSenders does the same with bare clients, many at a time: each
// item arrives unchanged and once.
func TestA01_OwnSenders(t *testing.T) {
	sink := newSink(t)
	n := newNode(t, nodeSettings{Sink: sink.Addr, Profiles: true})
	n.start()
	ledger := NewLedger()
	t.Run("senders", func(t *testing.T) {
		for name, s := range map[string]Sender{
			"grpc":          newGRPC(t, n.grpc),
			"http":          newHTTP(t, n.http, false, false),
			"http gzip":     newHTTP(t, n.http, false, true),
			"http json":     newHTTP(t, n.http, true, false),
			"http json gz":  newHTTP(t, n.http, true, true),
			"grpc, another": newGRPC(t, n.grpc),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for i := range 40 {
					mustAck(t, ledger, s, ledger.Batch(Signal(i%4), 1+i))
				}
			})
		}
	})
	r := allArrive(t, ledger, sink)
	require.Zero(t, r.Duplicates, "nothing failed")
	require.NoError(t, n.current.Stop(patience))
}

// TestA03_KilledBeforeDelivery: acknowledged, then SIGKILL before anything was
// delivered; the next life delivers it.
func TestA03_KilledBeforeDelivery(t *testing.T) {
	sink := newSink(t)
	sink.SetDown(true)
	n := newNode(t, nodeSettings{Sink: sink.Addr})
	n.start()
	ledger := NewLedger()
	for _, s := range []Sender{newGRPC(t, n.grpc), newHTTP(t, n.http, false, true), newHTTP(t, n.http, true, false)} {
		for _, signal := range []Signal{Logs, Traces, Metrics} {
			mustAck(t, ledger, s, ledger.Batch(signal, 20))
		}
	}
	n.current.Kill()
	sink.SetDown(false)
	require.Zero(t, ledger.Compare(sink).Arrived, "the sink was down: nothing can have arrived")

	n.start()
	mustAck(t, ledger, newGRPC(t, n.grpc), ledger.Batch(Logs, 1)) // it serves, so it catches signals
	allArrive(t, ledger, sink)
	require.NoError(t, n.current.Stop(patience))
}

// TestA04_StoppedWithSinkDown: a graceful stop while the destination is down
// ends by itself, keeps everything, and the next life delivers it.
func TestA04_StoppedWithSinkDown(t *testing.T) {
	sink := newSink(t)
	sink.SetDown(true)
	n := newNode(t, nodeSettings{Sink: sink.Addr})
	n.start()
	ledger := NewLedger()
	sender := newGRPC(t, n.grpc)
	for i := range 30 {
		mustAck(t, ledger, sender, ledger.Batch(Signal(i%3), 10))
	}
	require.NoError(t, n.current.Stop(patience))
	require.Zero(t, ledger.Compare(sink).Arrived, "the sink was down: nothing can have arrived")

	sink.SetDown(false)
	n.start()
	mustAck(t, ledger, newGRPC(t, n.grpc), ledger.Batch(Logs, 1)) // it serves, so it catches signals
	r := allArrive(t, ledger, sink)
	require.Zero(t, r.Duplicates, "nothing was delivered before the stop")
	require.NoError(t, n.current.Stop(patience))
}
