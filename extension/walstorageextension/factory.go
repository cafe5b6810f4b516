// SPDX-License-Identifier: Apache-2.0

package walstorageextension // import "github.com/otelweir/weir/extension/walstorageextension"

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/otelweir/weir/extension/walstorageextension/internal/metadata"
)

// NewFactory returns the factory of wal_storage.
func NewFactory() extension.Factory {
	return extension.NewFactory(metadata.Type, createDefaultConfig, create, metadata.ExtensionStability)
}

// create touches no file, lock or goroutine: the validate command calls it.
func create(_ context.Context, set extension.Settings, cfg component.Config) (extension.Extension, error) {
	return newExtension(set, cfg.(*Config)), nil
}
