// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelweir/weir/barrier"
)

// scriptedLog records its passes as "<since start> <pass>" and runs what the
// test gives it.
type scriptedLog struct {
	start     time.Time
	pressure  chan struct{}
	barrier   func(ctx context.Context) error
	housekeep func(ctx context.Context) (barrier.Progress, error)

	mu     sync.Mutex
	passes []string
	active int
}

func newScriptedLog() *scriptedLog {
	return &scriptedLog{start: time.Now(), pressure: make(chan struct{}, 1)}
}

func (s *scriptedLog) enter(what string) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passes = append(s.passes, fmt.Sprintf("%v %s", time.Since(s.start), what))
	s.active++
	if s.active != 1 {
		s.passes = append(s.passes, "overlap")
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.active--
	}
}

func (s *scriptedLog) Barrier(ctx context.Context, why barrier.Occasion) error {
	defer s.enter([...]string{barrier.Regular: "barrier", barrier.Early: "early barrier", barrier.Final: "final barrier"}[why])()
	if s.barrier == nil {
		return nil
	}
	return s.barrier(ctx)
}

func (s *scriptedLog) Housekeep(ctx context.Context, maxUnlinks int) (barrier.Progress, error) {
	defer s.enter(fmt.Sprintf("housekeep %d", maxUnlinks))()
	if s.housekeep == nil {
		return barrier.Progress{}, nil
	}
	return s.housekeep(ctx)
}

func (s *scriptedLog) Pressure() <-chan struct{} { return s.pressure }
func (s *scriptedLog) Status() barrier.Status    { return barrier.Status{} }

func (s *scriptedLog) press() {
	select {
	case s.pressure <- struct{}{}:
	default:
	}
}

func (s *scriptedLog) taken() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.passes
	s.passes = nil
	return out
}

func removing(n int) func(context.Context) (barrier.Progress, error) {
	return func(context.Context) (barrier.Progress, error) {
		return barrier.Progress{Planned: n, Removed: n}, nil
	}
}

func testConfig(barrierInterval, housekeepingInterval time.Duration) Config {
	return Config{BarrierInterval: barrierInterval, HousekeepingInterval: housekeepingInterval, MaxUnlinksPerPass: 7, PressureWatermark: 0.5}
}

func since(s *scriptedLog, instant time.Time) time.Duration { return instant.Sub(s.start) }

func TestTwoCadencesOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		l := Start(log, testConfig(30*time.Second, 10*time.Second), nil, zap.NewNop())
		defer l.Stop()

		time.Sleep(30 * time.Second)
		assert.Equal(t, []string{"10s housekeep 7", "20s housekeep 7", "30s barrier", "30s housekeep 7"}, log.taken(),
			"the barrier comes first when both are due")
	})
}

// A slow pass delays what is due meanwhile, and neither cadence catches up
// with a burst.
func TestSlowPassesAreNotMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		log.barrier = func(context.Context) error {
			time.Sleep(35 * time.Second)
			return nil
		}
		l := Start(log, testConfig(30*time.Second, 10*time.Second), nil, zap.NewNop())
		defer l.Stop()

		time.Sleep(66 * time.Second)
		assert.Equal(t, []string{
			"10s housekeep 7", "20s housekeep 7",
			"30s barrier", "1m5s housekeep 7",
			"1m5s barrier",
		}, log.taken())
		time.Sleep(35 * time.Second) // let it end
	})
}

func TestB03_DueInstantsArePublishedFromRegistrationOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		l := Start(log, testConfig(30*time.Second, 7*time.Second), nil, zap.NewNop())
		defer l.Stop()

		assert.Equal(t, 30*time.Second, since(log, l.NextBarrier()))
		assert.Equal(t, 7*time.Second, since(log, l.NextHousekeeping()))
		assert.Equal(t, 30*time.Second, l.BarrierInterval())
		assert.Equal(t, 7*time.Second, l.HousekeepingInterval())
		assert.InDelta(t, 0.5, l.PressureWatermark(), 0)
		assert.Zero(t, l.FlushBound(), "no flusher is registered")

		time.Sleep(14 * time.Second)
		synctest.Wait()
		assert.Equal(t, 21*time.Second, since(log, l.NextHousekeeping()))
		assert.Equal(t, 30*time.Second, since(log, l.NextBarrier()))
		time.Sleep(16 * time.Second)
		synctest.Wait()
		assert.Equal(t, 60*time.Second, since(log, l.NextBarrier()))
	})
}

// The bubble's clock has no monotonic reading, so this one looks at real
// instants, of which nothing falls due.
func TestB03_InstantsAreMonotonic(t *testing.T) {
	l := Start(newScriptedLog(), testConfig(time.Hour, time.Hour), nil, zap.NewNop())
	defer l.Stop()
	for _, instant := range []time.Time{l.NextBarrier(), l.NextHousekeeping()} {
		assert.Contains(t, instant.String(), " m=", "an instant without a monotonic reading moves with the wall clock")
	}
}

// While a pass runs, the other's published instant is not earlier than the
// pass's start + the flush bound, and its own is the next one.
func TestB03_InstantsWhileAPassRuns(t *testing.T) {
	for _, tc := range []struct {
		name                            string
		barrierInterval, keepInterval   time.Duration
		flusher                         bool
		runs                            string // the pass that is looked into
		at                              time.Duration
		wantBarrier, wantHousekeeping   time.Duration
		afterBarrier, afterHousekeeping time.Duration
	}{
		{
			name:            "barrier, both due at once, flush bound 10s",
			barrierInterval: 30 * time.Second, keepInterval: 30 * time.Second, flusher: true,
			runs: "barrier", at: 30 * time.Second,
			wantBarrier: 60 * time.Second, wantHousekeeping: 40 * time.Second,
			afterBarrier: 60 * time.Second, afterHousekeeping: 64 * time.Second, // housekeeping ran at 34s
		},
		{
			name:            "barrier, flush bound half of a short interval",
			barrierInterval: 6 * time.Second, keepInterval: 7 * time.Second, flusher: true,
			runs: "barrier", at: 6 * time.Second,
			wantBarrier: 12 * time.Second, wantHousekeeping: 9 * time.Second,
			afterBarrier: 12 * time.Second, afterHousekeeping: 17 * time.Second, // housekeeping ran at 10s
		},
		{
			name:            "barrier, housekeeping due later than the bound",
			barrierInterval: 4 * time.Second, keepInterval: 50 * time.Second, flusher: true,
			runs: "barrier", at: 4 * time.Second,
			wantBarrier: 8 * time.Second, wantHousekeeping: 50 * time.Second,
			afterBarrier: 12 * time.Second, afterHousekeeping: 50 * time.Second, // the next barrier was due at its end
		},
		{
			name:            "barrier, no flusher",
			barrierInterval: 30 * time.Second, keepInterval: 30 * time.Second,
			runs: "barrier", at: 30 * time.Second,
			wantBarrier: 60 * time.Second, wantHousekeeping: 30 * time.Second,
			afterBarrier: 60 * time.Second, afterHousekeeping: 64 * time.Second,
		},
		{
			name:            "housekeeping, barrier due while it runs",
			barrierInterval: 22 * time.Second, keepInterval: 20 * time.Second, flusher: true,
			runs: "housekeep", at: 20 * time.Second,
			wantBarrier: 30 * time.Second, wantHousekeeping: 40 * time.Second,
			afterBarrier: 46 * time.Second, afterHousekeeping: 40 * time.Second, // the barrier ran at 24s
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newScriptedLog()
				flushers := NewFlushers(zap.NewNop())
				if tc.flusher {
					unregister, err := flushers.Register(component.MustNewID("sink"), flushFunc(func(context.Context) error { return nil }))
					require.NoError(t, err)
					defer unregister()
				}
				hold := func(pass string) {
					if pass == tc.runs && time.Since(log.start) == tc.at {
						time.Sleep(4 * time.Second)
					}
				}
				log.barrier = func(context.Context) error { hold("barrier"); return nil }
				log.housekeep = func(context.Context) (barrier.Progress, error) {
					hold("housekeep")
					return barrier.Progress{}, nil
				}
				l := Start(log, testConfig(tc.barrierInterval, tc.keepInterval), flushers, zap.NewNop())
				defer l.Stop()

				time.Sleep(tc.at + time.Second)
				synctest.Wait()
				assert.Equal(t, tc.wantBarrier, since(log, l.NextBarrier()), "next barrier while the pass runs")
				assert.Equal(t, tc.wantHousekeeping, since(log, l.NextHousekeeping()), "next housekeeping while the pass runs")
				time.Sleep(3 * time.Second)
				synctest.Wait()
				assert.Equal(t, tc.afterBarrier, since(log, l.NextBarrier()), "next barrier afterwards")
				assert.Equal(t, tc.afterHousekeeping, since(log, l.NextHousekeeping()), "next housekeeping afterwards")
			})
		})
	}
}

func TestB03_PressureBringsBothInstantsForwardAndLeavesTheCadenceAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		l := Start(log, testConfig(30*time.Second, 10*time.Second), nil, zap.NewNop())
		defer l.Stop()

		time.Sleep(2 * time.Second)
		log.press()
		assert.Equal(t, []string{"2s early barrier", "2s housekeep 7"}, log.taken(), "both passes at once, the barrier one that never flushes")
		assert.Equal(t, 30*time.Second, since(log, l.NextBarrier()))
		assert.Equal(t, 10*time.Second, since(log, l.NextHousekeeping()))

		// It removed nothing: the next one waits, and says until when.
		log.press()
		synctest.Wait()
		assert.Equal(t, 2100*time.Millisecond, since(log, l.NextBarrier()))
		assert.Equal(t, 2100*time.Millisecond, since(log, l.NextHousekeeping()))
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, []string{"2.1s early barrier", "2.1s housekeep 7"}, log.taken())
		assert.Equal(t, 30*time.Second, since(log, l.NextBarrier()))

		time.Sleep(30*time.Second - time.Since(log.start))
		assert.Equal(t, []string{"10s housekeep 7", "20s housekeep 7", "30s barrier", "30s housekeep 7"}, log.taken())
	})
}

// Pressure that falls due with the cadence must not take the place of the
// barrier that may flush.
func TestB19_BarrierDueByTheCadenceIsRegularUnderPressureToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		l := Start(log, testConfig(10*time.Second, time.Hour), nil, zap.NewNop())
		defer l.Stop()
		time.Sleep(9900 * time.Millisecond)
		log.press()
		assert.Equal(t, []string{"9.9s early barrier", "9.9s housekeep 7"}, log.taken())
		log.press() // it removed nothing: the next one waits 100 ms, until the barrier is due
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, []string{"10s barrier", "10s housekeep 7"}, log.taken())
		assert.Equal(t, 20*time.Second, since(log, l.NextBarrier()))
	})
}

// While a pressure barrier runs, housekeeping is due right after it.
func TestB03_InstantsWhileAPressureBarrierRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		flushers := NewFlushers(zap.NewNop())
		defer register(t, flushers, func(context.Context) error { return nil })()
		log.barrier = func(context.Context) error {
			time.Sleep(time.Second)
			return nil
		}
		l := Start(log, testConfig(10*time.Minute, time.Minute), flushers, zap.NewNop())
		defer l.Stop()
		time.Sleep(2 * time.Second)
		log.press()
		synctest.Wait()
		assert.Equal(t, 12*time.Second, since(log, l.NextHousekeeping()), "start + flush bound")
		assert.Equal(t, 10*time.Minute, since(log, l.NextBarrier()))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, time.Minute, since(log, l.NextHousekeeping()))
	})
}

// A blocked node asks for relief all the time and gets none.
func TestB19_PressureWithoutEffectDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		log.housekeep = func(context.Context) (barrier.Progress, error) {
			log.press()
			return barrier.Progress{Planned: 1, Remaining: 1}, errors.New("unlink: input/output error")
		}
		l := Start(log, testConfig(time.Hour, 10*time.Second), nil, zap.NewNop())
		defer l.Stop()
		log.press()

		var at []string
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			for _, pass := range log.taken() {
				if instant, ok := strings.CutSuffix(pass, " early barrier"); ok {
					at = append(at, instant)
				}
			}
		}
		// Distances 100 ms, 200 ms … 6.4 s, then one housekeeping interval.
		assert.Equal(t, []string{
			"0s", "100ms", "300ms", "700ms", "1.5s", "3.1s", "6.3s", "12.7s", "22.7s", "32.7s", "42.7s", "52.7s",
		}, at, "pressure barriers")
	})
}

// A healthy node is not held up: every pass that removed something lets the
// next one follow at once.
func TestB19_PressureThatHelpsIsNotSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		l := Start(log, testConfig(time.Hour, 10*time.Second), nil, zap.NewNop())
		defer l.Stop()

		for range 4 { // fruitless: the distance grows to 800 ms
			log.press()
			time.Sleep(2 * time.Second)
		}
		log.taken()
		log.housekeep = removing(3)
		log.press()
		synctest.Wait()
		require.Len(t, log.taken(), 2, "the pass after the distance")
		for range 5 {
			time.Sleep(time.Millisecond)
			log.press()
			assert.Len(t, log.taken(), 2, "barrier and housekeeping at once")
		}
	})
}

// A regular pass that removes something ends the spacing too.
func TestB19_RegularPassThatHelpsEndsTheSpacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		l := Start(log, testConfig(time.Hour, 10*time.Second), nil, zap.NewNop())
		defer l.Stop()
		log.housekeep = func(ctx context.Context) (barrier.Progress, error) {
			if time.Since(log.start) == 20*time.Second {
				return removing(1)(ctx)
			}
			return barrier.Progress{}, nil
		}
		for _, at := range []time.Duration{0, 1000, 2000, 3000, 4000, 6000, 9500, 17000} { // ms; the distance grows to 10 s
			time.Sleep(at*time.Millisecond - time.Since(log.start))
			log.press()
			synctest.Wait()
		}
		time.Sleep(20*time.Second - time.Since(log.start))
		log.taken()
		log.press()
		assert.Equal(t, []string{"20s early barrier", "20s housekeep 7"}, log.taken())
	})
}

// Requests that come while one waits for its turn are answered by that pass.
func TestB19_RequestsWhileOneWaitsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		l := Start(log, testConfig(time.Hour, 30*time.Minute), nil, zap.NewNop())
		defer l.Stop()
		for range 3 { // the first runs at once, the second waits, the third stays in the channel
			log.press()
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"0s early barrier", "0s housekeep 7", "100ms early barrier", "100ms housekeep 7"}, log.taken())
	})
}

// Requests that pile up while a pass runs are answered by one pass.
func TestB19_RequestsDuringAPassAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newScriptedLog()
		log.housekeep = removing(1)
		log.barrier = func(context.Context) error {
			time.Sleep(time.Second)
			return nil
		}
		l := Start(log, testConfig(time.Hour, 30*time.Minute), nil, zap.NewNop())
		defer l.Stop()
		log.press()
		time.Sleep(500 * time.Millisecond)
		log.press()
		log.press()
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"0s early barrier", "1s housekeep 7", "1s early barrier", "2s housekeep 7"}, log.taken())
	})
}

func TestB19_PressureOff(t *testing.T) {
	for _, tc := range []struct {
		name      string
		watermark float64
		prepare   func(*scriptedLog)
	}{
		{"watermark 0", 0, func(s *scriptedLog) { s.press() }},
		{"closed channel", 0.5, func(s *scriptedLog) { close(s.pressure) }},
		{"nil channel", 0.5, func(s *scriptedLog) { s.pressure = nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newScriptedLog()
				tc.prepare(log)
				cfg := testConfig(time.Minute, 30*time.Second)
				cfg.PressureWatermark = tc.watermark
				l := Start(log, cfg, nil, zap.NewNop())
				defer l.Stop()
				time.Sleep(29 * time.Second)
				assert.Empty(t, log.taken())
				time.Sleep(time.Second)
				assert.Equal(t, []string{"30s housekeep 7"}, log.taken())
			})
		})
	}
}

// A failing pass is said once, repeated at most once a minute, and its end is
// said; the loop goes on.
func TestFailuresAreSaidSparinglyAndStopNothing(t *testing.T) {
	const want = "write STATE: input/output error"
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zapcore.InfoLevel)
		log := newScriptedLog()
		var failing atomic.Bool
		failing.Store(true)
		log.barrier = func(context.Context) error {
			if failing.Load() {
				return errors.New(want)
			}
			return nil
		}
		l := Start(log, testConfig(10*time.Second, time.Hour), nil, zap.New(core))
		defer l.Stop()

		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, seen.Len(), "said at once")
		first := seen.All()[0]
		assert.Equal(t, zapcore.ErrorLevel, first.Level)
		assert.Contains(t, first.ContextMap()["error"], want)
		barriers, _ := l.Reports()
		assert.Contains(t, barriers.LastError, want)

		time.Sleep(50 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, seen.Len(), "not repeated within a minute")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, seen.Len(), "repeated after a minute")
		assert.EqualValues(t, 7, seen.All()[1].ContextMap()["failures"])
		assert.Len(t, log.taken(), 7, "the loop goes on")

		failing.Store(false)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Equal(t, 3, seen.Len(), "the end is said once")
		assert.Equal(t, zapcore.InfoLevel, seen.All()[2].Level)
		barriers, _ = l.Reports()
		assert.Equal(t, PassReport{Runs: 9, Failures: 7, Started: barriers.Started}, barriers)
	})
}

func TestHousekeepingFailureIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zapcore.InfoLevel)
		log := newScriptedLog()
		log.housekeep = func(context.Context) (barrier.Progress, error) {
			time.Sleep(time.Second)
			return barrier.Progress{Planned: 3, Removed: 2, Remaining: 1}, errors.New("unlink: permission denied")
		}
		l := Start(log, testConfig(time.Hour, 10*time.Second), nil, zap.New(core))
		defer l.Stop()

		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, keeping := l.Reports()
		assert.Equal(t, PassReport{Runs: 1, Running: true, Started: log.start.Add(10 * time.Second)}, keeping)
		time.Sleep(time.Second)
		synctest.Wait()
		_, keeping = l.Reports()
		assert.Equal(t, PassReport{
			Runs: 1, Failures: 1, Started: log.start.Add(10 * time.Second), Took: time.Second,
			LastError: "unlink: permission denied", Progress: barrier.Progress{Planned: 3, Removed: 2, Remaining: 1},
		}, keeping)
		assert.Equal(t, 1, seen.FilterMessageSnippet("Housekeeping failed").Len())
	})
}

func TestStopWaitsForARunningPassAndMayBeCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zapcore.InfoLevel)
		log := newScriptedLog()
		ended := false
		log.barrier = func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second) // what cannot be interrupted
			ended = true
			return ctx.Err()
		}
		l := Start(log, testConfig(10*time.Second, time.Hour), nil, zap.New(core))
		time.Sleep(11 * time.Second)
		synctest.Wait()

		var stops sync.WaitGroup
		for range 3 {
			stops.Go(func() {
				l.Stop()
				assert.True(t, ended, "Stop returned while the pass ran")
			})
		}
		stops.Wait()
		l.Stop()
		assert.Equal(t, 14*time.Second, time.Since(log.start))
		assert.Zero(t, seen.Len(), "an interrupted pass is no failure")

		before := l.NextBarrier()
		time.Sleep(time.Hour)
		assert.Equal(t, before, l.NextBarrier(), "the instants no longer move")
		assert.Equal(t, []string{"10s barrier"}, log.taken())
	})
}

// Whatever a pass held when it panicked, the lock of the log among it, nobody
// could ever use again: the process ends, and the next one recovers the log.
func TestPanicInAPassEndsTheProcess(t *testing.T) {
	const env = "WEIR_TEST_PANIC_IN"
	if pass := os.Getenv(env); pass != "" {
		log := newScriptedLog()
		log.barrier = func(context.Context) error {
			if pass == "barrier" {
				panic("boom in the barrier")
			}
			return nil
		}
		log.housekeep = func(context.Context) (barrier.Progress, error) { panic("boom in the housekeeping") }
		Start(log, testConfig(time.Millisecond, 2*time.Millisecond), nil, zap.NewNop())
		select {} // until the panic ends it
	}
	for _, pass := range []string{"barrier", "housekeeping"} {
		t.Run(pass, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanicInAPassEndsTheProcess$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), env+"="+pass)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s", out)
			assert.Contains(t, string(out), "panic: boom in the "+pass)
		})
	}
}

func TestStartRefusesIntervalsThatWouldSpin(t *testing.T) {
	for _, cfg := range []Config{
		testConfig(0, time.Second),
		testConfig(time.Second, -1),
		{BarrierInterval: time.Second, HousekeepingInterval: time.Second},
	} {
		assert.Panics(t, func() { Start(newScriptedLog(), cfg, nil, zap.NewNop()) }, "%+v", cfg)
	}
}

func TestDefaultsKeepTheWorstHintShort(t *testing.T) {
	cfg := NewDefaultConfig()
	assert.LessOrEqual(t, cfg.BarrierInterval+cfg.FlushBound()+cfg.HousekeepingInterval, 50*time.Second)
}
