// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"

	"github.com/otelweir/weir/internal/journal"
)

func TestD10_PanicInConsume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		panics := 2
		r.p.setReact(func(*call) error {
			if panics > 0 {
				panics--
				panic("a bug downstream")
			}
			return nil
		})
		pos := r.logFrame("t", "a")
		r.wait()
		assert.Equal(t, pos, r.frontier(logLane("t")))
		assert.Equal(t, Parked, r.state(logLane("t")))
		assert.Contains(t, r.Lanes()[0].LastError, "a bug downstream")
		time.Sleep(time.Minute)
		r.logFrame("t", "b")
		r.wait()
		assert.Equal(t, []string{"a", "a", "a", "b"}, r.p.bodies())
		assert.Equal(t, r.log.Durable(), r.frontier(logLane("t")))
	})
}

func TestD15_KeptMetadataReachesThePipelineAfterReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		log.append(logLane("acme"), 1, logPayload("a"), journal.Entry{Key: "x-region", Value: "eu"}, journal.Entry{Key: "x-region", Value: "us"})
		log.append(logLane("acme"), 1, logPayload("b"), journal.Entry{Key: "x-region", Value: "eu"})
		log.append(logLane("acme"), 1, logPayload("c"), journal.Entry{Key: "x-region", Value: "eu"})
		log.append(logLane(""), 1, logPayload("d"))
		r := newStoppedRig(t, log, func(s *Settings) { s.Config.TenantKey = "X-Scope-OrgID"; s.Config.Consumers = 1 })
		var got []client.Info
		r.p.setReact(func(c *call) error { got = append(got, client.FromContext(c.ctx)); return nil })
		r.Start()
		r.wait()
		require.Len(t, got, 3, "frames whose metadata differ are not merged")
		assert.Equal(t, []string{"a", "b", "c", "d"}, r.p.bodies())
		assert.Equal(t, []string{"eu", "us"}, got[0].Metadata.Get("x-region"))
		assert.Equal(t, []string{"acme"}, got[0].Metadata.Get("x-scope-orgid"))
		assert.Equal(t, []string{"eu"}, got[1].Metadata.Get("x-region"))
		assert.Empty(t, got[2].Metadata.Get("x-scope-orgid"), "no tenant, no header")
		assert.Nil(t, got[0].Addr)
		assert.Nil(t, got[0].Auth)
	})
}

func TestD16_RetryDecodesAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.p.mutate = true
		fail := true
		r.p.setReact(func(*call) error {
			if fail {
				fail = false
				return errors.New("unavailable")
			}
			return nil
		})
		r.logFrame("t", "original")
		r.wait()
		time.Sleep(time.Minute)
		r.wait()
		assert.Equal(t, []string{"original", "original"}, r.p.bodies())
	})
}
