package main

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// The recorder's queues hold 1000 each and drop silently (tools/record, maxQueuedEvents): with at most half of that
// in flight, neither overflows.
const maxUnderway = 500

// Limits above those of any test. Large numbers, because client-go reads 0 as "default"; but not the largest: an
// interval of more than 292 years never expires, not even for a first Event, and client-go panics.
const (
	openBurst    = 1 << 30
	openQPS      = 1e6
	openMessages = 1 << 30
	openInterval = 1 << 30
	openCache    = 1 << 20
)

// Not a valid name in a cluster: underscores are invalid.
const drainName = "drain_sentinel"

// Legacy drives tools/record with its own correlator.
type Legacy struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	options     Options
	underway    chan struct{}
	drained     chan struct{}
}

// NewLegacy starts the recorder.
func NewLegacy(o Options, client kubernetes.Interface) *Legacy {
	l := &Legacy{options: o, underway: make(chan struct{}, maxUnderway), drained: make(chan struct{})}
	l.broadcaster = record.NewBroadcasterWithCorrelatorOptions(l.correlatorOptions())
	sink := &typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")}
	l.broadcaster.StartRecordingToSink(&drainSink{EventSink: sink, drained: l.drained})
	source := corev1.EventSource{Component: o.Component, Host: o.Instance}
	l.recorder = l.broadcaster.NewRecorder(scheme.Scheme, source)
	return l
}

func (l *Legacy) correlatorOptions() record.CorrelatorOptions {
	options := record.CorrelatorOptions{
		// client-go's default key function; called once per dequeued Event.
		KeyFunc: func(event *corev1.Event) (string, string) {
			<-l.underway
			return record.EventAggregatorByReasonFunc(event)
		},
	}
	if l.options.SpamFilter == limitOpen {
		options.BurstSize, options.QPS = openBurst, openQPS
	}
	if l.options.Aggregation == limitOpen {
		options.MaxEvents, options.MaxIntervalInSeconds = openMessages, openInterval
	}
	if l.options.SpamFilter == limitOpen || l.options.Aggregation == limitOpen {
		// With more objects than the cache holds the correlator loses counts.
		options.LRUCacheSize = openCache
	}
	return options
}

// Emit passes the n-th occurrence of an object to the recorder.
func (l *Legacy) Emit(ctx context.Context, ref *corev1.ObjectReference, n int) bool {
	select {
	case <-ctx.Done():
		return false
	case l.underway <- struct{}{}:
	}
	l.recorder.Event(ref, l.options.Type, l.options.Reason, l.options.MessageOf(n))
	return true
}

// Settle returns when every occurrence was processed. The recorder is sequential: when a sentinel Event reaches the
// sink (and is not sent), all earlier ones were processed.
func (l *Legacy) Settle(ctx context.Context, _ []ObjectTotal) bool {
	sentinel := &corev1.ObjectReference{Kind: l.options.Kind, Namespace: l.options.Namespace, Name: drainName}
	if !l.Emit(ctx, sentinel, 0) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-l.drained:
		return true
	}
}

// Stop stops the recorder.
func (l *Legacy) Stop() { l.broadcaster.Shutdown() }

// drainSink does not send the sentinel.
type drainSink struct {
	record.EventSink
	drained chan struct{}
	once    sync.Once
}

func (s *drainSink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.InvolvedObject.Name == drainName {
		s.once.Do(func() { close(s.drained) })
		return event, nil
	}
	return s.EventSink.Create(event)
}
