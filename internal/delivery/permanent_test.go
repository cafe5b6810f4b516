// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/otelweir/weir/internal/journal"
)

func permanent(c codes.Code) error { return consumererror.NewPermanent(status.Error(c, c.String())) }

func TestJudge(t *testing.T) {
	plain := errors.New("plain")
	for _, tt := range []struct {
		name string
		err  error
		want verdict
	}{
		{"plain", plain, retryable},
		{"status that senders would drop, but not permanent here", status.Error(codes.InvalidArgument, ""), retryable},
		{"permanent", consumererror.NewPermanent(plain), aboutData},
		{"permanent, wrapped", fmt.Errorf("exporter: %w", consumererror.NewPermanent(plain)), aboutData},
		{"permanent around a wrapped status", consumererror.NewPermanent(fmt.Errorf("x: %w", status.Error(codes.Unauthenticated, ""))), elsewhere},
		{"permanent InvalidArgument", permanent(codes.InvalidArgument), aboutData},
		{"permanent FailedPrecondition", permanent(codes.FailedPrecondition), aboutData},
		{"permanent Unauthenticated", permanent(codes.Unauthenticated), elsewhere},
		{"permanent PermissionDenied", permanent(codes.PermissionDenied), elsewhere},
		{"permanent NotFound", permanent(codes.NotFound), elsewhere},
		{"permanent Unimplemented", permanent(codes.Unimplemented), elsewhere},
		{"permanent Internal", permanent(codes.Internal), elsewhere},
		{"permanent Unknown", permanent(codes.Unknown), elsewhere},
		{"permanent ResourceExhausted", permanent(codes.ResourceExhausted), elsewhere},
		{"permanent Unavailable", permanent(codes.Unavailable), elsewhere},
		{"HTTP 400", consumererror.NewOTLPHTTPError(plain, 400), aboutData},
		{"HTTP 413", consumererror.NewOTLPHTTPError(plain, 413), aboutData},
		{"permanent HTTP 413", consumererror.NewPermanent(consumererror.NewOTLPHTTPError(plain, 413)), aboutData},
		{"HTTP 401", consumererror.NewOTLPHTTPError(plain, 401), elsewhere},
		{"HTTP 403", consumererror.NewOTLPHTTPError(plain, 403), elsewhere},
		{"HTTP 404", consumererror.NewOTLPHTTPError(plain, 404), elsewhere},
		{"HTTP 500", consumererror.NewOTLPHTTPError(plain, 500), elsewhere},
		{"HTTP 501", consumererror.NewOTLPHTTPError(plain, 501), elsewhere},
		{"HTTP 503", consumererror.NewOTLPHTTPError(plain, 503), retryable},
		{"HTTP 429", consumererror.NewOTLPHTTPError(plain, 429), retryable},
		{"OTLP status InvalidArgument", consumererror.NewOTLPGRPCError(nil, status.New(codes.InvalidArgument, "")), aboutData},
		{"OTLP status Unauthenticated", consumererror.NewOTLPGRPCError(nil, status.New(codes.Unauthenticated, "")), elsewhere},
		{"OTLP status FailedPrecondition", consumererror.NewOTLPGRPCError(plain, status.New(codes.FailedPrecondition, "")), aboutData},
		{"OTLP status Unavailable", consumererror.NewOTLPGRPCError(nil, status.New(codes.Unavailable, "")), retryable},
		{"retryable by name", consumererror.NewRetryableError(plain), retryable},
		{"partial", consumererror.NewLogs(plain, decodeLogs(logPayload("a"))), retryable},
		{"one pipeline retryable, one permanent", errors.Join(consumererror.NewPermanent(plain), plain), retryable},
		{"one about the data, one not", errors.Join(consumererror.NewPermanent(plain), permanent(codes.Unauthenticated)), elsewhere},
		{"all about the data", errors.Join(consumererror.NewPermanent(plain), permanent(codes.InvalidArgument)), aboutData},
		{"permanent as a whole", consumererror.NewPermanent(errors.Join(plain, plain)), aboutData},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, judge(tt.err)) })
	}
}

// poison fails permanently whatever call carries the body.
func poison(body string, err error) func(*call) error {
	return func(c *call) error {
		if slices.Contains(c.bodies, body) {
			return err
		}
		return nil
	}
}

func TestD12_PermanentErrorInsideAMergedGroup(t *testing.T) {
	bad := consumererror.NewPermanent(errors.New("malformed"))
	for _, policy := range []PermanentPolicy{DeadLetter, Drop, Block} {
		for k := range 5 {
			t.Run(fmt.Sprintf("policy %d, frame %d", policy, k), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					log := newMemLog()
					r := newStoppedRig(t, log, func(s *Settings) { s.Config.OnPermanentError = policy; s.Config.Consumers = 1 })
					r.p.setReact(poison(fmt.Sprintf("a%d", k), bad))
					var pos []journal.Position
					for _, n := range names("a", 5) {
						pos = append(pos, r.logFrame("t", n))
					}
					r.Start()
					r.wait()
					calls := r.p.all()
					require.Len(t, calls[0].frames, 5, "merged")
					stats := r.Stats().Signals[journal.KindLogs]
					if policy == Block {
						assert.Equal(t, Blocked, r.state(logLane("t")))
						assert.Equal(t, pos[k], r.frontier(logLane("t")))
						assert.Equal(t, 1, r.Stats().Parked)
						r.p.setReact(func(*call) error { return nil })
						time.Sleep(time.Minute)
						r.wait()
						assert.Equal(t, log.Durable(), r.frontier(logLane("t")), "and goes on when it passes")
						assert.Empty(t, log.lettersWritten())
						return
					}
					require.Len(t, calls, 6, "then each alone")
					assert.Equal(t, log.Durable(), r.frontier(logLane("t")))
					assert.Equal(t, uint64(4), stats.Settled.Items)
					if policy == DeadLetter {
						assert.Equal(t, pos[k:k+1], log.lettersWritten())
						assert.Contains(t, log.reasons[0], "malformed")
						assert.Equal(t, Tally{1, log.frames[k].Len}, stats.DeadLettered)
						assert.Equal(t, 1, r.events("wal.dead_letter.written"))
						assert.Zero(t, stats.Dropped.Items)
					} else {
						assert.Empty(t, log.lettersWritten())
						assert.Equal(t, Tally{1, log.frames[k].Len}, stats.Dropped)
					}
					assert.Zero(t, stats.PendingItems)
				})
			})
		}
	}
}

func TestD12_DeadLettersFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, oneFrameGroups)
		r.p.setReact(poison("bad", consumererror.NewPermanent(errors.New("malformed"))))
		var full atomic.Bool
		full.Store(true)
		r.log.letterOK = func(int) error {
			if full.Load() {
				return journal.ErrDeadLetterFull
			}
			return nil
		}
		pos := r.logFrame("t", "bad")
		r.wait()
		for range 10 {
			r.logFrame("t", "good")
			r.logFrame("other", "good")
			time.Sleep(10 * time.Second)
			r.wait()
			require.Equal(t, r.log.Durable(), r.frontier(logLane("other")), "another lane goes on")
		}
		require.Equal(t, Blocked, r.state(logLane("t")))
		require.Equal(t, pos, r.frontier(logLane("t")), "nothing is dropped to make room")
		assert.Contains(t, r.Lanes()[1].LastError, "no room for another dead letter")
		full.Store(false)
		time.Sleep(time.Minute)
		r.wait()
		assert.Equal(t, r.log.Durable(), r.frontier(logLane("t")))
		assert.Equal(t, []journal.Position{pos}, r.log.lettersWritten())
		assert.Equal(t, 1, r.events("wal.delivery.parked"))
		assert.Equal(t, 1, r.events("wal.delivery.resumed"))
	})
}

func TestGraceForErrorsThatAreNotAboutTheData(t *testing.T) {
	setup := func(t *testing.T) *rig {
		return newRig(t, func(s *Settings) { s.Config.PermanentGrace = 10 * time.Minute; oneFrameGroups(s) })
	}
	t.Run("an expired token costs nothing within it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := setup(t)
			began := time.Now()
			r.p.setReact(func(*call) error { return permanent(codes.Unauthenticated) })
			for _, n := range names("a", 20) {
				r.logFrame("t", n)
			}
			time.Sleep(9 * time.Minute)
			r.wait()
			require.Equal(t, Parked, r.state(logLane("t")))
			until := "permanent_grace ends at " + began.Add(10*time.Minute).UTC().Format(time.RFC3339)
			assert.Contains(t, r.Lanes()[0].LastError, until)
			assert.Contains(t, r.logs.FilterField(zap.String("event.name", "wal.delivery.parked")).All()[0].ContextMap()["error"], until)
			r.p.setReact(func(*call) error { return nil })
			time.Sleep(time.Minute)
			r.wait()
			assert.Equal(t, 1, r.logs.FilterMessage("Delivery of a lane has resumed").Len())
			assert.Empty(t, r.log.lettersWritten())
			assert.Equal(t, uint64(20), r.Stats().Signals[1].Settled.Items)
		})
	})
	t.Run("after it the policy applies, to every frame without a further hour each", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := setup(t)
			r.p.setReact(func(*call) error { return permanent(codes.Unauthenticated) })
			for _, n := range names("a", 20) {
				r.logFrame("t", n)
			}
			time.Sleep(11 * time.Minute)
			r.wait()
			assert.Len(t, r.log.lettersWritten(), 20)
			assert.Equal(t, r.log.Durable(), r.frontier(logLane("t")))
		})
	})
	t.Run("an outage in between begins it anew", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := setup(t)
			began := time.Now()
			r.p.setReact(func(*call) error {
				if s := time.Since(began); s > 5*time.Minute && s < 6*time.Minute {
					return errUnavailable
				}
				return permanent(codes.Unauthenticated)
			})
			r.logFrame("t", "a")
			time.Sleep(15 * time.Minute)
			r.wait()
			assert.Empty(t, r.log.lettersWritten())
			time.Sleep(2 * time.Minute)
			r.wait()
			assert.Len(t, r.log.lettersWritten(), 1)
		})
	})
	for _, policy := range []PermanentPolicy{DeadLetter, Drop} {
		t.Run(fmt.Sprintf("a blip long after an outage that ended with the backlog has a grace of its own, policy %d", policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(s *Settings) {
					s.Config.PermanentGrace, s.Config.OnPermanentError = 10*time.Minute, policy
					oneFrameGroups(s)
				})
				r.p.setReact(func(*call) error { return permanent(codes.Unauthenticated) })
				for _, n := range names("a", 20) {
					r.logFrame("t", n)
				}
				time.Sleep(11 * time.Minute)
				r.wait()
				set := r.Stats().Signals[journal.KindLogs]
				require.Equal(t, uint64(20), set.DeadLettered.Items+set.Dropped.Items)
				require.Equal(t, Idle, r.state(logLane("t")))
				assert.NotZero(t, r.logs.FilterMessageSnippet("goes on because its head was "+map[PermanentPolicy]string{
					DeadLetter: "set aside as a dead letter", Drop: "dropped",
				}[policy]).FilterField(zap.String("event.name", "wal.delivery.resumed")).Len())
				assert.Zero(t, r.logs.FilterMessageSnippet("has resumed").Len(), "nothing was delivered")
				time.Sleep(24 * time.Hour)
				calls := 0
				r.p.setReact(func(*call) error {
					if calls++; calls == 1 {
						return permanent(codes.Unauthenticated)
					}
					return nil
				})
				r.logFrame("t", "b")
				time.Sleep(time.Minute)
				r.wait()
				got := r.Stats().Signals[journal.KindLogs]
				assert.Equal(t, uint64(1), got.Settled.Items, "one expired token costs no data")
				assert.Equal(t, uint64(20), got.DeadLettered.Items+got.Dropped.Items)
			})
		})
	}
	t.Run("an error about the data ends the outage", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := setup(t)
			began := time.Now()
			r.p.setReact(func(c *call) error {
				switch {
				case time.Since(began) < 9*time.Minute:
					return permanent(codes.Unauthenticated)
				case c.bodies[0] == "bad":
					return permanent(codes.InvalidArgument)
				case time.Since(began) < 12*time.Minute:
					return permanent(codes.Unauthenticated)
				}
				return nil
			})
			bad := r.logFrame("t", "bad")
			r.logFrame("t", "good")
			time.Sleep(15 * time.Minute)
			r.wait()
			assert.Equal(t, []journal.Position{bad}, r.log.lettersWritten())
			assert.Equal(t, uint64(1), r.Stats().Signals[journal.KindLogs].Settled.Items)
		})
	})
	t.Run("one frame the destination chokes on does not take others with it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newStoppedRig(t, newMemLog(), func(s *Settings) { s.Config.PermanentGrace = 10 * time.Minute })
			r.p.setReact(poison("a3", permanent(codes.Internal)))
			for _, n := range names("a", 8) {
				r.logFrame("t", n)
			}
			r.Start()
			time.Sleep(30 * time.Minute)
			r.wait()
			assert.Len(t, r.log.lettersWritten(), 1)
			assert.Equal(t, uint64(7), r.Stats().Signals[1].Settled.Items)
		})
	})
}

func TestA07_MissingPipeline(t *testing.T) {
	for _, policy := range []MissingPolicy{Keep, DeadLetterMissing, DropMissing} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newMemLog()
				traces := journal.Lane{Tenant: "t", Kind: journal.KindTraces}
				var pos []journal.Position
				for range 3 { // in the log already, and while it runs
					pos = append(pos, log.append(traces, 1, tracePayload("s")))
					log.append(logLane("t"), 1, logPayload("a"))
				}
				r := newStoppedRig(t, log, func(s *Settings) { s.Config.OnMissingPipeline = policy; s.Next.Traces = nil })
				r.p.setReact(func(*call) error { return nil })
				r.Start()
				r.wait()
				for range 3 {
					pos = append(pos, log.append(traces, 1, tracePayload("s")))
					log.append(logLane("t"), 1, logPayload("a"))
				}
				r.wait()
				assert.Equal(t, log.Durable(), r.frontier(logLane("t")))
				assert.Equal(t, uint64(6), r.Stats().Signals[journal.KindLogs].Settled.Items)
				s := r.Stats().Signals[journal.KindTraces]
				switch policy {
				case Keep:
					assert.Equal(t, pos[0], r.frontier(traces))
					assert.Equal(t, NoPipeline, r.state(traces))
					assert.Equal(t, uint64(6), s.PendingItems)
					assert.Equal(t, "no_pipeline", r.Lanes()[1].State)
				case DeadLetterMissing:
					assert.Equal(t, log.Durable(), r.frontier(traces))
					assert.Equal(t, pos, log.lettersWritten())
					assert.Equal(t, uint64(6), s.DeadLettered.Items)
					assert.Zero(t, s.PendingItems)
				case DropMissing:
					assert.Equal(t, log.Durable(), r.frontier(traces))
					assert.Equal(t, uint64(6), s.Dropped.Items)
					assert.Zero(t, s.PendingItems)
				}
				assert.Empty(t, r.open())
			})
		})
	}
}

func TestUndecodableFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.p.setReact(func(*call) error { return nil })
		r.logFrame("t", "a")
		bad := r.log.append(logLane("t"), 1, []byte{0xFF, 0xFF, 0xFF})
		r.logFrame("t", "b")
		r.wait()
		assert.ElementsMatch(t, []string{"a", "b"}, r.p.bodies())
		assert.Equal(t, []journal.Position{bad}, r.log.lettersWritten())
		assert.Equal(t, r.log.Durable(), r.frontier(logLane("t")))
	})
}
