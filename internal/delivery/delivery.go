// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pipeline"
	"go.uber.org/zap"

	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/membudget"
)

const (
	// drainGrace is how long running Consume calls may go on at shutdown.
	drainGrace = 10 * time.Second
	// cancelGrace is how long they may take once they are cancelled.
	cancelGrace = 5 * time.Second
)

var errShutdown = errors.New("the log is shutting down")

// Consumers are the pipelines' next components; nil where no pipeline takes
// the signal.
type Consumers struct {
	Logs     consumer.Logs
	Traces   consumer.Traces
	Metrics  consumer.Metrics
	Profiles xconsumer.Profiles
}

// Settings are what a Delivery is made of. The callbacks are optional; they
// are called from many goroutines, outside all locks, and must not block.
type Settings struct {
	Journal  *journal.Journal
	Recovery journal.Recovery // what opening the journal found
	Next     Consumers
	Config   Config
	Logger   *zap.Logger

	// OnSettled is told how many frame bytes were settled.
	OnSettled func(bytes uint64)
	// OnConsumed is told of every Consume call: how long it took and how it
	// ended (success, retryable, permanent).
	OnConsumed func(signal pipeline.Signal, took time.Duration, outcome string)
	// OnChange is told that a lane parked or resumed, or that damage stopped
	// the reader: Stats and Damage say which.
	OnChange func()
}

// Delivery brings what is in a log to the pipelines. It is safe for concurrent
// use.
type Delivery struct {
	cfg        Config
	bounds     bounds
	source     source
	logID      [16]byte
	next       Consumers
	logger     *zap.Logger
	estimate   func(journal.Kind, []byte) uint64
	onSettled  func(uint64)
	onConsumed func(pipeline.Signal, time.Duration, string)
	onChange   func()

	base      context.Context // of every Consume call
	cancel    context.CancelCauseFunc
	stop      chan struct{} // closed when delivery stops
	wake      chan struct{} // for the catch-up reader; holds one
	readers   sync.WaitGroup
	rereaders sync.Pool // of closed readers, for their buffers
	runs      sync.WaitGroup
	consuming atomic.Int64 // calls that have not returned
	abandoned atomic.Bool  // Shutdown has returned: the journal may be closed

	budget    *membudget.Budget
	counts    [journal.KindProfiles + 1]counts
	parked    atomic.Int64
	heldBytes atomic.Uint64
	lost      atomic.Uint64    // items
	recovered journal.Position // the end of what recovery found
	skipBytes uint64

	maxRemembered int

	mu sync.Mutex // guards all below, and every lane, group and handles

	started, stopping, closed bool

	lanes   map[journal.Lane]*lane
	gone    [journal.KindProfiles + 1]SignalStats // what forgotten lanes had counted
	main    journal.Position                      // up to where the main reader has read
	returns uint64                                // times a lane came back to the main reader

	mainError, lapError error                  // what the main and the catch-up reader met last, until they get on
	damages             []*journal.DamageError // that either can not get past, in the order they met it
	blamed              []string               // read errors that were logged

	mainGather, lapGather gatherers
	cached                uint64 // payload bytes of frames in groups that wait

	queue     line // have a group to deliver
	retries   line // halted, head due
	running   int  // consumers in use
	retrying  int  // consumers in use by heads of halted lanes
	doubted   use  // by lanes in doubt, see doubtful
	signals   [journal.KindProfiles + 1]signalHealth
	retryTurn bool // the next free consumer goes to a retry, if one is due
	asking    bool // a timer will look again for room in the budget

	remembered int                // bytes, of unsettled groups
	crowded    map[*lane]struct{} // full, or were; to be told of room

	timers map[*time.Timer]struct{} // see after

	wants []*lane // behind and able to take a frame, first come first served
	lap   lap

	// Told when the lock is released, see unlock.
	settled uint64
	tidings []func()
}

// New prepares delivery of everything unsettled in the log. It starts nothing.
func New(s Settings) (*Delivery, error) {
	if s.Journal == nil {
		return nil, errors.New("delivery: no journal")
	}
	return newDelivery(s, journalSource{s.Journal})
}

func newDelivery(s Settings, src source) (*Delivery, error) {
	if err := s.Config.check(); err != nil {
		return nil, err
	}
	d := &Delivery{
		cfg:           s.Config,
		bounds:        bounds{GroupConfig: s.Config.Group, cost: math.MaxUint64},
		source:        src,
		logID:         src.LogID(),
		next:          s.Next,
		logger:        s.Logger,
		estimate:      estimate,
		onSettled:     s.OnSettled,
		onConsumed:    s.OnConsumed,
		onChange:      s.OnChange,
		stop:          make(chan struct{}),
		wake:          make(chan struct{}, 1),
		budget:        membudget.New(s.Config.MaxInFlightBytes),
		recovered:     src.Durable(),
		skipBytes:     skipBytes,
		maxRemembered: maxRemembered,
		crowded:       map[*lane]struct{}{},
		timers:        map[*time.Timer]struct{}{},
		lanes:         map[journal.Lane]*lane{},
		lap:           lap{id: 1},
	}
	if limit := s.Config.MaxInFlightBytes; limit > 0 {
		d.bounds.cost = share(limit, 1)
	}
	if d.logger == nil {
		d.logger = zap.NewNop()
	}
	if d.onSettled == nil {
		d.onSettled = func(uint64) {}
	}
	if d.onConsumed == nil {
		d.onConsumed = func(pipeline.Signal, time.Duration, string) {}
	}
	if d.onChange == nil {
		d.onChange = func() {}
	}
	d.base, d.cancel = context.WithCancelCause(context.Background())
	d.seed(s.Recovery)
	return d, nil
}

// seed makes the lanes recovery found, each with the horizon it resumes at,
// and finds where the main reader begins: the first frame any of them has to
// deliver.
func (d *Delivery) seed(r journal.Recovery) {
	d.main = d.recovered
	for _, info := range d.source.Lanes() {
		horizon := max(info.Horizon, r.Horizons[info.Lane])
		first, ok := d.source.NextOf(info.Lane, horizon)
		if !ok {
			first = d.recovered
		}
		l := d.newLane(info.Lane, max(first, horizon))
		if l == nil {
			continue
		}
		l.from = horizon
		l.counts.pending.Store(int64(r.LaneItems[info.Lane]))
		d.count(l).pending.Add(int64(r.LaneItems[info.Lane]))
		if l.phase == current {
			d.main = min(d.main, max(first, horizon))
		}
	}
	for id, horizon := range r.Horizons {
		if d.lanes[id] == nil && horizon > d.main {
			if l := d.newLane(id, horizon); l != nil {
				l.from = horizon
			}
		}
	}
}

// newLane makes the lane of a frame at p; nil for a kind this version does not
// know.
func (d *Delivery) newLane(id journal.Lane, p journal.Position) *lane {
	signal, ok := signalOf(id.Kind)
	if !ok {
		return nil
	}
	l := &lane{id: id, signal: signal}
	if !d.next.takes(id.Kind) && d.cfg.OnMissingPipeline == Keep {
		l.phase, l.cursor, l.missed = noPipeline, p, true
	}
	d.lanes[id] = l
	return l
}

// drops reports whether frames of l are settled as they are read.
func (d *Delivery) drops(l *lane) bool {
	return d.cfg.OnMissingPipeline == DropMissing && !d.next.takes(l.id.Kind)
}

// Start begins to deliver. It is called once.
func (d *Delivery) Start() {
	d.mu.Lock()
	defer d.unlock()
	if d.started || d.stopping {
		return
	}
	d.started = true
	d.readers.Go(d.readMain)
	d.readers.Go(d.readBehind)
}

// Shutdown stops delivering: no new Consume call is made, running ones may end
// for 10 s, or until ctx ends, are cancelled then, and awaited for 5 s more.
// What they did not finish stays unsettled. A read is awaited as long. It may
// be called without Start and more than once. The error says that calls or
// reads are still running.
//
// Handles stay valid, so that a last barrier can have sinks flush; see
// [Delivery.Close].
func (d *Delivery) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	if !d.stopping {
		d.stopping = true
		close(d.stop)
		for t := range d.timers {
			t.Stop() // or it would keep all this in memory
		}
		clear(d.timers)
	}
	d.unlock()

	defer d.abandoned.Store(true)
	defer d.cancel(errShutdown)
	read, done := make(chan struct{}), make(chan struct{})
	go func() {
		d.readers.Wait()
		close(read)
		d.runs.Wait()
		close(done)
	}()
	grace := time.NewTimer(drainGrace)
	defer grace.Stop()
	select {
	case <-done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	d.cancel(errShutdown)
	last := time.NewTimer(cancelGrace)
	defer last.Stop()
	select {
	case <-done:
		return nil
	case <-last.C:
	}
	d.mu.Lock()
	running := int64(d.running)
	d.mu.Unlock()
	var errs []error
	select {
	case <-read:
	default:
		errs = append(errs, errors.New("delivery: a read of the log does not return"))
	}
	calls := min(d.consuming.Load(), running)
	if calls > 0 {
		errs = append(errs, fmt.Errorf("delivery: %d Consume calls ignore their cancellation; their frames stay in the log", calls))
	}
	if n := running - calls; n > 0 {
		errs = append(errs, fmt.Errorf("delivery: %d reads of frames or writes of dead letters do not return: the disk does not answer", n))
	}
	return errors.Join(errs...)
}

// Close makes every handle void: releasing one does nothing from now on. It is
// called after Shutdown and the last barrier, before the journal is closed.
func (d *Delivery) Close() {
	d.mu.Lock()
	defer d.unlock()
	d.closed = true
}

func (d *Delivery) stopped() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}

// tell has f called once the lock is released.
func (d *Delivery) tell(f func()) { d.tidings = append(d.tidings, f) }

// unlock releases the lock and then says, in the same goroutine, what happened
// under it.
func (d *Delivery) unlock() {
	settled, tidings := d.settled, d.tidings
	d.settled, d.tidings = 0, nil
	d.mu.Unlock()
	if settled > 0 {
		d.onSettled(settled)
	}
	for _, f := range tidings {
		f()
	}
}
