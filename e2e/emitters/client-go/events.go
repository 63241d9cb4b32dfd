package main

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// NewStyle drives tools/events.
type NewStyle struct {
	broadcaster events.EventBroadcaster
	recorder    events.EventRecorder
	options     Options
	sink        *watchedSink
	underway    chan struct{}
	stop        context.CancelFunc
}

// NewNewStyle starts the recorder.
func NewNewStyle(o Options, client kubernetes.Interface) (*NewStyle, error) {
	ctx, stop := context.WithCancel(context.Background())
	s := &NewStyle{options: o, underway: make(chan struct{}, maxUnderway), stop: stop}
	s.sink = &watchedSink{
		next:     &events.EventSinkImpl{Interface: client.EventsV1()},
		instance: o.Instance,
		begun:    map[string]bool{},
		repeated: map[string]bool{},
		changed:  make(chan struct{}, 1),
	}
	s.broadcaster = events.NewBroadcaster(sink{s.sink})
	if err := startRecording(ctx, s.broadcaster); err != nil {
		stop()
		return nil, err
	}
	// A second watcher of the same queue gets an Event in the same step as the recorder.
	if err := startWatching(s.broadcaster, func(runtime.Object) { <-s.underway }); err != nil {
		stop()
		return nil, err
	}
	s.recorder = s.broadcaster.NewRecorder(scheme.Scheme, o.Component)
	return s, nil
}

// Emit passes the n-th occurrence of an object to the recorder.
func (s *NewStyle) Emit(ctx context.Context, ref *corev1.ObjectReference, n int) bool {
	if s.options.InTurn && n <= 2 && !s.Settle(ctx, []ObjectTotal{{Name: ref.Name, Occurrences: n}}) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case s.underway <- struct{}{}:
	}
	s.recorder.Eventf(ref, nil, s.options.Type, s.options.Reason, s.options.Action, "%s", s.options.MessageOf(n))
	return true
}

// Settle returns when the recorder has processed the answers to each object's first and second occurrence: it keeps
// the others until its timers run.
func (s *NewStyle) Settle(ctx context.Context, totals []ObjectTotal) bool {
	for !s.sink.answered(totals) {
		select {
		case <-ctx.Done():
			return false
		case <-s.sink.changed:
		}
	}
	return recordingEnd(ctx)
}

// Stop stops the recorder: unsent occurrences are lost, as in every program that uses it.
func (s *NewStyle) Stop() {
	s.stop()
	s.broadcaster.Shutdown()
}

// watchedSink records the objects whose Events were answered, and sets the instance: the recorder uses the host name,
// which two processes on one machine share. The methods that the recorder calls are in the files beside this one:
// before v0.29 client-go passes no context to its sinks.
type watchedSink struct {
	next     *events.EventSinkImpl
	instance string
	changed  chan struct{}

	mu       sync.Mutex
	begun    map[string]bool
	repeated map[string]bool
}

func (s *watchedSink) create(event *eventsv1.Event, send func() (*eventsv1.Event, error)) (*eventsv1.Event, error) {
	event.ReportingInstance = s.instance
	// Read before it is sent: up to v0.24 the recorder counts in this same Event.
	repeats := event.Series != nil
	created, err := send()
	// A CREATE with a series follows a PATCH that found no Event; if the Event exists now, the recorder retries.
	again := repeats && apierrors.IsAlreadyExists(err)
	s.note(event, repeats, !again && isAnswer(err))
	return created, err
}

func (s *watchedSink) patch(event *eventsv1.Event, send func() (*eventsv1.Event, error)) (*eventsv1.Event, error) {
	patched, err := send()
	s.note(event, true, isAnswer(err) && !apierrors.IsNotFound(err))
	return patched, err
}

// isAnswer distinguishes an answer of the API server, after which the recorder is done, from a connection error.
func isAnswer(err error) bool {
	return err == nil || apierrors.ReasonForError(err) != ""
}

func (s *watchedSink) note(event *eventsv1.Event, repeats, done bool) {
	if !done {
		return
	}
	s.mu.Lock()
	if repeats {
		s.repeated[event.Regarding.Name] = true
	} else {
		s.begun[event.Regarding.Name] = true
	}
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *watchedSink) answered(totals []ObjectTotal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range totals {
		if t.Occurrences >= 1 && !s.begun[t.Name] || t.Occurrences >= 2 && !s.repeated[t.Name] {
			return false
		}
	}
	return true
}
