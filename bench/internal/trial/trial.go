// SPDX-License-Identifier: Apache-2.0

// Package trial compares ways of doing the same thing on a machine whose speed
// changes from minute to minute.
//
// Nothing absolute is judged. Every round runs the reference, then each
// subject, then the reference again; a subject's result of a round is its
// ratio to the mean of the two references around it, and its result is the
// median over the rounds. The two references of a round also measure each
// other: where they disagree by more than [MaxNoise] in more than a quarter of
// the rounds, the machine decided and not the code, and the comparison is void.
package trial // import "github.com/otelweir/weir/bench/internal/trial"

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// MaxNoise is how much the reference may disagree with itself: 1.25 stands for
// a ratio within 0.8 and 1.25.
const MaxNoise = 1.25

// Run is what one run of an arm came to.
type Run struct {
	Ops     int
	Bytes   uint64 // handled by these operations
	Elapsed time.Duration
	CPU     time.Duration   // of the process under test, where that is measured
	Latency []time.Duration // of each operation, where that is measured; sorted by Finish
}

// Finish sorts the latencies: quantiles may be asked for after it.
func (r *Run) Finish() { slices.Sort(r.Latency) }

// Rate is operations per second.
func (r *Run) Rate() float64 { return float64(r.Ops) / r.Elapsed.Seconds() }

// Throughput is bytes per second.
func (r *Run) Throughput() float64 { return float64(r.Bytes) / r.Elapsed.Seconds() }

// CPUPerOp is nanoseconds of processor time per operation.
func (r *Run) CPUPerOp() float64 { return float64(r.CPU) / float64(r.Ops) }

// Quantile is the latency that a share q of the operations did not exceed, in
// nanoseconds; 0 when none was measured.
func (r *Run) Quantile(q float64) float64 {
	if len(r.Latency) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(r.Latency)))) - 1
	return float64(r.Latency[min(max(i, 0), len(r.Latency)-1)])
}

// Metric is what of a run is compared.
type Metric func(*Run) float64

// The metrics.
var (
	Rate       Metric = (*Run).Rate
	Throughput Metric = (*Run).Throughput
	CPUPerOp   Metric = (*Run).CPUPerOp
	P50        Metric = func(r *Run) float64 { return r.Quantile(0.50) }
	P99        Metric = func(r *Run) float64 { return r.Quantile(0.99) }
)

// Arm is one way of doing the thing.
type Arm struct {
	Name string
	Run  func() (Run, error)
}

// Result is what all rounds came to.
type Result struct {
	Before, After []Run            // the reference's, by round
	Subjects      map[string][]Run // by name and round
}

// Compare runs so many rounds.
func Compare(rounds int, reference Arm, subjects ...Arm) (*Result, error) {
	r := &Result{Subjects: map[string][]Run{}}
	one := func(a Arm) (Run, error) {
		run, err := a.Run()
		if err == nil && (run.Ops == 0 || run.Elapsed <= 0) {
			err = fmt.Errorf("%d operations in %v", run.Ops, run.Elapsed)
		}
		if err != nil {
			return run, fmt.Errorf("%s: %w", a.Name, err)
		}
		run.Finish()
		return run, nil
	}
	for range rounds {
		before, err := one(reference)
		if err != nil {
			return nil, err
		}
		for _, a := range subjects {
			run, err := one(a)
			if err != nil {
				return nil, err
			}
			r.Subjects[a.Name] = append(r.Subjects[a.Name], run)
		}
		after, err := one(reference)
		if err != nil {
			return nil, err
		}
		r.Before, r.After = append(r.Before, before), append(r.After, after)
	}
	return r, nil
}

// Ratio is a subject against the reference.
type Ratio struct {
	Median    float64
	Low, High float64 // of all rounds
	Noise     float64 // how much the reference disagreed with itself, at most, in three of four rounds; ≥ 1
}

// Ratio compares a metric of a subject.
func (r *Result) Ratio(subject string, m Metric) Ratio {
	ratios, noise := make([]float64, len(r.Before)), make([]float64, len(r.Before))
	for i := range r.Before {
		before, after := m(&r.Before[i]), m(&r.After[i])
		ratios[i] = m(&r.Subjects[subject][i]) / math.Sqrt(before*after)
		noise[i] = max(before/after, after/before)
	}
	slices.Sort(ratios)
	slices.Sort(noise)
	quiet := (3*len(noise)+3)/4 - 1
	return Ratio{Median: Median(ratios), Low: ratios[0], High: ratios[len(ratios)-1], Noise: noise[quiet]}
}

// Reference is the median of a metric of the reference.
func (r *Result) Reference(m Metric) float64 {
	var all []float64
	for i := range r.Before {
		all = append(all, m(&r.Before[i]), m(&r.After[i]))
	}
	return Median(all)
}

// Subject is the median of a metric of a subject.
func (r *Result) Subject(name string, m Metric) float64 {
	var all []float64
	for i := range r.Subjects[name] {
		all = append(all, m(&r.Subjects[name][i]))
	}
	return Median(all)
}

// Median of at least one value.
func Median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}
