// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"fmt"
	"time"
)

// PermanentPolicy says what becomes of a frame that fails permanently.
type PermanentPolicy uint8

// The policies for a permanent error.
const (
	DeadLetter PermanentPolicy = iota // the frame is stored aside, then settled
	Drop                              // the frame is settled and counted
	Block                             // the lane stops at the frame
)

// MissingPolicy says what becomes of frames of a signal that no pipeline
// takes.
type MissingPolicy uint8

// The policies for a missing pipeline.
const (
	Keep              MissingPolicy = iota // they stay in the log
	DeadLetterMissing                      // they are stored aside, then settled
	DropMissing                            // they are settled and counted
)

// Config is the `delivery:` section of the receiver, resolved and validated
// there. The zero value is not usable; see [DefaultConfig].
type Config struct {
	Consumers        int           // concurrent Consume calls
	Timeout          time.Duration // of one Consume call; 0 = none
	MaxInFlightBytes uint64        // bytes of what is being decoded and delivered; 0 = unbounded
	Group            GroupConfig
	Retry            RetryConfig

	OnPermanentError   PermanentPolicy
	PermanentGrace     time.Duration // how long an error that is not about the data is retried first
	DeadLetterMaxBytes uint64
	OnMissingPipeline  MissingPolicy

	// TenantKey is the client metadata key the tenant came under; it is
	// restored under it. Empty = the tenant is not restored.
	TenantKey string

	// KeepLanes is how many lanes there may be before one of which nothing is
	// left in the log is forgotten. What is counted by lane goes on when such a
	// lane comes back.
	KeepLanes int
}

// GroupConfig bounds what is merged into one Consume call. A single frame
// beyond either bound is a group of its own.
type GroupConfig struct {
	MaxItems uint64
	MaxBytes uint64 // of payload, as received
}

// RetryConfig is the backoff of a parked lane. There is no end to it.
type RetryConfig struct {
	InitialInterval     time.Duration
	MaxInterval         time.Duration
	Multiplier          float64
	RandomizationFactor float64 // 0..1: the interval is drawn from interval × (1 ± factor)
}

// DefaultConfig is what the receiver documents.
func DefaultConfig() Config {
	return Config{
		Consumers:        10,
		Timeout:          5 * time.Minute,
		MaxInFlightBytes: 128 << 20,
		Group:            GroupConfig{MaxItems: 8192, MaxBytes: 4 << 20},
		Retry: RetryConfig{
			InitialInterval:     time.Second,
			MaxInterval:         10 * time.Second,
			Multiplier:          1.5,
			RandomizationFactor: 0.5,
		},
		OnPermanentError:   DeadLetter,
		PermanentGrace:     time.Hour,
		DeadLetterMaxBytes: 64 << 20,
		OnMissingPipeline:  Keep,
	}
}

// check refuses what would make delivery stand still or spin. Ranges for
// people are the receiver's to check.
func (c *Config) check() error {
	switch {
	case c.Consumers < 1:
		return fmt.Errorf("delivery: consumers is %d: at least 1", c.Consumers)
	case c.Group.MaxItems < 1 || c.Group.MaxBytes < 1:
		return fmt.Errorf("delivery: group of %d items and %d bytes: at least 1 each", c.Group.MaxItems, c.Group.MaxBytes)
	case c.Retry.InitialInterval <= 0 || c.Retry.MaxInterval < c.Retry.InitialInterval:
		return fmt.Errorf("delivery: retry from %v to %v: must begin above 0 and not shrink", c.Retry.InitialInterval, c.Retry.MaxInterval)
	case c.Retry.Multiplier < 1:
		return fmt.Errorf("delivery: retry multiplier is %v: at least 1", c.Retry.Multiplier)
	case c.Retry.RandomizationFactor < 0 || c.Retry.RandomizationFactor > 1:
		return fmt.Errorf("delivery: retry randomization factor is %v: 0 to 1", c.Retry.RandomizationFactor)
	case c.Timeout < 0 || c.PermanentGrace < 0:
		return fmt.Errorf("delivery: timeout %v, permanent grace %v: not below 0", c.Timeout, c.PermanentGrace)
	}
	return nil
}
