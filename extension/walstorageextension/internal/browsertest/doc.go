// SPDX-License-Identifier: Apache-2.0

// Package browsertest looks at the status page in a real browser: a headless
// Chromium, driven by chromedp. It is a module of its own, so that nobody who
// builds Weir needs either.
//
//	make e2e-browser
//
// Needs /usr/bin/chromium or another that chromedp finds, and the built
// collector for the one test that compares the page with the metrics.
// WEIR_SCREENSHOTS names a directory for pictures of every state.
package browsertest
