package main

import (
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// CaptureLogs redirects client-go's logs from standard error to the journal.
func CaptureLogs(journal *Journal) {
	klog.SetLogger(logr.New(logSink{journal}))
}

// logSink prints message and error without the values: client-go attaches whole Events.
type logSink struct{ journal *Journal }

func (logSink) Init(logr.RuntimeInfo) {}

// Enabled hides lines of -v above 0, as in programs by default: an operator does not see a refusal that client-go
// logs at V(5).
func (logSink) Enabled(level int) bool { return level == 0 }

func (s logSink) Info(_ int, message string, _ ...any) { s.journal.Logged("info", message, nil) }

func (s logSink) Error(err error, message string, _ ...any) { s.journal.Logged("error", message, err) }

func (s logSink) WithValues(...any) logr.LogSink { return s }

func (s logSink) WithName(string) logr.LogSink { return s }
