// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
)

// TestLedger: the oracle of every test here fails when it should.
func TestLedger(t *testing.T) {
	send := func(l *Ledger, answers ...Answer) Batch {
		b := l.Batch(Logs, 2)
		for _, a := range answers {
			l.Record(b, a)
		}
		return b
	}
	arrive := func(t *testing.T, s *Sink, b Batch, damage bool) {
		t.Helper()
		d := b.Logs()
		if damage {
			d.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(1).Body().SetStr("something else")
		}
		_, err := (&logsSink{sink: s}).Export(t.Context(), plogotlp.NewExportRequestFromLogs(d))
		require.NoError(t, err)
	}
	for _, c := range []struct {
		name     string
		answers  []Answer
		arrivals int
		damage   bool
		broken   string // "" = every promise kept
		twice    int
	}{
		{name: "acked, arrived", answers: []Answer{{Outcome: Acked}}, arrivals: 1},
		{name: "acked, arrived twice", answers: []Answer{{Outcome: Acked}}, arrivals: 2, twice: 2},
		{name: "acked, lost", answers: []Answer{{Outcome: Acked}}, broken: "never arrived"},
		{name: "refused", answers: []Answer{{Outcome: Refused, Reason: "wal_backpressure_bytes"}}},
		{name: "refused, arrived", answers: []Answer{{Outcome: Refused}}, arrivals: 1, broken: "although they were refused"},
		{name: "undecided", answers: []Answer{{Outcome: Undecided}}},
		{name: "undecided, arrived", answers: []Answer{{Outcome: Undecided}}, arrivals: 1},
		{name: "undecided, then refused, arrived", answers: []Answer{{Outcome: Undecided}, {Outcome: Refused}}, arrivals: 1},
		{name: "refused, then acked, lost", answers: []Answer{{Outcome: Refused}, {Outcome: Acked}}, broken: "never arrived"},
		{name: "acked, then refused, lost", answers: []Answer{{Outcome: Acked}, {Outcome: Refused}}, broken: "never arrived"},
		{name: "refused for good", answers: []Answer{{Outcome: Refused, Permanent: true, Err: errors.New("no")}}, broken: "refused for good"},
		{name: "never sent", arrivals: 1, broken: "nobody sent"},
		{name: "changed", answers: []Answer{{Outcome: Acked}}, arrivals: 1, damage: true, broken: "arrived changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := NewLedger()
			s, err := NewSink()
			require.NoError(t, err)
			defer s.Close()
			b := send(l, c.answers...)
			for range c.arrivals {
				arrive(t, s, b, c.damage)
			}
			r := l.Compare(s)
			require.Equal(t, c.twice, r.Duplicates)
			if c.broken == "" {
				require.NoError(t, r.Err())
				return
			}
			require.ErrorContains(t, r.Err(), c.broken)
		})
	}
}
