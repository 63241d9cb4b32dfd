package main

import (
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// CaptureLogs sends what client-go logs to the journal instead of to standard error.
func CaptureLogs(journal *Journal) {
	klog.SetLogger(logr.New(logSink{journal}))
}

// logSink prints message and error and leaves out the values: client-go attaches whole Events.
type logSink struct{ journal *Journal }

func (logSink) Init(logr.RuntimeInfo) {}

// Enabled leaves out what a program shows at -v above 0, as programs run by default: a refusal that
// client-go logs at V(5) is no line that an operator of it would see.
func (logSink) Enabled(level int) bool { return level == 0 }

func (s logSink) Info(_ int, message string, _ ...any) { s.journal.Logged("info", message, nil) }

func (s logSink) Error(err error, message string, _ ...any) { s.journal.Logged("error", message, err) }

func (s logSink) WithValues(...any) logr.LogSink { return s }

func (s logSink) WithName(string) logr.LogSink { return s }
