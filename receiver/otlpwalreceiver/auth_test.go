// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"errors"
	"runtime"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configauth"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/extension/extensionauth"
	grpcmetadata "google.golang.org/grpc/metadata"
)

// doorkeeper is an authentication extension.
type doorkeeper struct {
	component.StartFunc
	component.ShutdownFunc
}

var _ extensionauth.Server = doorkeeper{}

var doorkeeperID = component.MustNewID("doorkeeper")

func (doorkeeper) Authenticate(ctx context.Context, sources map[string][]string) (context.Context, error) {
	for k, v := range sources {
		if strings.EqualFold(k, "password") && len(v) == 1 && v[0] == "open sesame" {
			return ctx, nil
		}
	}
	return ctx, errors.New("no password")
}

func requireAuth() configoptional.Optional[configauth.Config] {
	return configoptional.Some(configauth.Config{AuthenticatorID: doorkeeperID})
}

func requireHTTPAuth() configoptional.Optional[confighttp.AuthConfig] {
	return configoptional.Some(confighttp.AuthConfig{Config: configauth.Config{AuthenticatorID: doorkeeperID}})
}

func withPassword(ctx context.Context) context.Context {
	return grpcmetadata.AppendToOutgoingContext(ctx, "password", "open sesame")
}

// testHost has extensions.
type testHost struct {
	extensions map[component.ID]component.Component
}

func newTestHost() *testHost {
	return &testHost{extensions: map[component.ID]component.Component{doorkeeperID: doorkeeper{}}}
}

func (h *testHost) GetExtensions() map[component.ID]component.Component { return h.extensions }

// heapLive is what is reachable now, in bytes.
func heapLive() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
