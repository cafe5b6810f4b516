// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"

	"github.com/otelweir/weir/internal/journal"
)

func metricPayload(name string) []byte {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(name)
	m.SetEmptyGauge().DataPoints().AppendEmpty().SetIntValue(1)
	b, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	if err != nil {
		panic(err)
	}
	return b
}

// profilePayload has one profile whose attribute is named by index into its
// own dictionary.
func profilePayload(key string) []byte {
	pd := pprofile.NewProfiles()
	dic := pd.Dictionary()
	dic.StringTable().Append("", "padding of "+key, key)
	dic.AttributeTable().AppendEmpty()
	a := dic.AttributeTable().AppendEmpty()
	a.SetKeyStrindex(2)
	a.Value().SetStr("value of " + key)
	dic.MappingTable().AppendEmpty()
	dic.LocationTable().AppendEmpty()
	dic.FunctionTable().AppendEmpty()
	dic.LinkTable().AppendEmpty()
	dic.StackTable().AppendEmpty()
	p := pd.ResourceProfiles().AppendEmpty().ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	p.AttributeIndices().Append(1)
	b, err := pprofileotlp.NewExportRequestFromProfiles(pd).MarshalProto()
	if err != nil {
		panic(err)
	}
	return b
}

// TestDecodeMergesInFrameOrder: what a merged group says is what its frames
// said, one after the other.
func TestDecodeMergesInFrameOrder(t *testing.T) {
	sink := new(consumertest.LogsSink)
	traces, metrics, profiles := new(consumertest.TracesSink), new(consumertest.MetricsSink), new(consumertest.ProfilesSink)
	c := Consumers{Logs: sink, Traces: traces, Metrics: metrics, Profiles: profiles}
	for kind, payload := range map[journal.Kind]func(string) []byte{
		journal.KindLogs:     func(s string) []byte { return logPayload(s) },
		journal.KindTraces:   tracePayload,
		journal.KindMetrics:  metricPayload,
		journal.KindProfiles: profilePayload,
	} {
		var frames []journal.ReadFrame
		for i := range 5 {
			frames = append(frames, journal.ReadFrame{Payload: payload(fmt.Sprint("n", i))})
		}
		consume, err := c.decode(kind, frames)
		require.NoError(t, err)
		require.NoError(t, consume(t.Context()))
		for i := range frames {
			assert.Nil(t, frames[i].Payload, "the frame as received is let go of")
		}
	}
	var got []string
	for _, rl := range sink.AllLogs()[0].ResourceLogs().All() {
		got = append(got, rl.ScopeLogs().At(0).LogRecords().At(0).Body().AsString())
	}
	assert.Equal(t, names("n", 5), got)
	got = nil
	for _, rs := range traces.AllTraces()[0].ResourceSpans().All() {
		got = append(got, rs.ScopeSpans().At(0).Spans().At(0).Name())
	}
	assert.Equal(t, names("n", 5), got)
	got = nil
	for _, rm := range metrics.AllMetrics()[0].ResourceMetrics().All() {
		got = append(got, rm.ScopeMetrics().At(0).Metrics().At(0).Name())
	}
	assert.Equal(t, names("n", 5), got)
	got = nil
	pd := profiles.AllProfiles()[0]
	for _, rp := range pd.ResourceProfiles().All() {
		i := rp.ScopeProfiles().At(0).Profiles().At(0).AttributeIndices().At(0)
		a := pd.Dictionary().AttributeTable().At(int(i))
		key := pd.Dictionary().StringTable().At(int(a.KeyStrindex()))
		assert.Equal(t, "value of "+key, a.Value().AsString())
		got = append(got, key)
	}
	assert.Equal(t, names("n", 5), got, "each profile still means what its own dictionary said")
}

func TestDecodeNamesTheFrameThatDoesNotDecode(t *testing.T) {
	c := Consumers{Logs: consumertest.NewNop()}
	_, err := c.decode(journal.KindLogs, []journal.ReadFrame{{Position: 3, Payload: logPayload("a")}, {Position: 77, Payload: []byte{0xFF}}})
	require.ErrorContains(t, err, "position 77")
	_, err = c.decode(99, []journal.ReadFrame{{}})
	require.Error(t, err)
}

func TestEstimateOfWhatWasAcknowledged(t *testing.T) {
	for kind, payload := range map[journal.Kind][]byte{
		journal.KindLogs: logPayload("a"), journal.KindTraces: tracePayload("a"),
		journal.KindMetrics: metricPayload("a"), journal.KindProfiles: profilePayload("a"),
	} {
		assert.Greater(t, estimate(kind, payload), uint64(len(payload)), "decoded, kind %d takes more than as received", kind)
	}
	assert.Equal(t, uint64(3), estimate(journal.KindLogs, []byte{0xFF, 0xFF, 0xFF}), "does not decode: as received")
}

func TestMalformedMetadataIsAboutTheData(t *testing.T) {
	d := &Delivery{}
	_, err := d.withClient(context.Background(), []byte{5})
	require.Error(t, err)
	assert.Equal(t, aboutData, judge(consumererror.NewPermanent(err)))
	ctx, err := d.withClient(context.Background(), must(journal.EncodeMetadata("", nil)))
	require.NoError(t, err)
	assert.Equal(t, client.Info{}, client.FromContext(ctx))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
