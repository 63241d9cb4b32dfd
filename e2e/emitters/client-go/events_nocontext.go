//go:build nocontext

package main

import (
	"context"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

func startRecording(ctx context.Context, broadcaster events.EventBroadcaster) error {
	broadcaster.StartRecordingToSink(ctx.Done())
	return nil
}

func startWatching(broadcaster events.EventBroadcaster, watch func(runtime.Object)) error {
	broadcaster.StartEventWatcher(watch)
	return nil
}

// sink is what the recorder writes to.
type sink struct{ *watchedSink }

func (s sink) Create(event *eventsv1.Event) (*eventsv1.Event, error) {
	return s.create(event, func() (*eventsv1.Event, error) { return s.next.Create(event) })
}

func (s sink) Update(event *eventsv1.Event) (*eventsv1.Event, error) { return s.next.Update(event) }

func (s sink) Patch(event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.patch(event, func() (*eventsv1.Event, error) { return s.next.Patch(event, data) })
}
