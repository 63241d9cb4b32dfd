//go:build !nocontext

package main

import (
	"context"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

func startRecording(ctx context.Context, broadcaster events.EventBroadcaster) error {
	return broadcaster.StartRecordingToSinkWithContext(ctx)
}

func startWatching(broadcaster events.EventBroadcaster, watch func(runtime.Object)) error {
	_, err := broadcaster.StartEventWatcher(watch)
	return err
}

// sink is what the recorder writes to.
type sink struct{ *watchedSink }

func (s sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return s.create(event, func() (*eventsv1.Event, error) { return s.next.Create(ctx, event) })
}

func (s sink) Update(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return s.next.Update(ctx, event)
}

func (s sink) Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.patch(event, func() (*eventsv1.Event, error) { return s.next.Patch(ctx, event, data) })
}
