package main

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// Time of client-go's own correlation of an Event, with its defaults: hack/bench shows it beside squelch's decision.
// The Event is that of squelch's benchmark of a whole review.
func BenchmarkEventCorrelate(b *testing.B) {
	backOff := recordedEvent(b)
	for _, of := range []struct {
		name   string
		events []*v1.Event
		// The expected result of the last Events, to verify what is measured.
		skips bool
	}{
		// The bucket is empty after 25; the discarded patch is still created.
		{name: "identical", events: []*v1.Event{backOff}, skips: true},
		{name: "distinct_messages", events: variants(backOff, 1000, func(event *v1.Event, number int) {
			event.Message = fmt.Sprintf("%s, try %d", event.Message, number)
		}), skips: true},
		// More objects than the 4096 that client-go caches: each is new.
		{name: "distinct_objects", events: variants(backOff, 10_000, func(event *v1.Event, number int) {
			event.InvolvedObject.Name = fmt.Sprintf("web-%d", number)
			event.InvolvedObject.UID = ""
		})},
	} {
		b.Run(of.name, func(b *testing.B) {
			correlator := record.NewEventCorrelator(wallClock{})
			correlate := func(turn int) *record.EventCorrelateResult {
				result, err := correlator.EventCorrelate(of.events[turn%len(of.events)])
				if err != nil {
					b.Fatal(err)
				}
				return result
			}
			turn := 0
			for ; turn < 100; turn++ {
				correlate(turn)
			}
			b.ReportAllocs()
			for b.Loop() {
				correlate(turn)
				turn++
			}
			if last := correlate(turn); last.Skip != of.skips {
				b.Fatalf("the last Event was skipped: %v", last.Skip)
			}
		})
	}
}

type wallClock struct{}

func (wallClock) Now() time.Time                  { return time.Now() }
func (wallClock) Since(t time.Time) time.Duration { return time.Since(t) }

// recordedEvent is the Event of a CREATE in a review.
func recordedEvent(b *testing.B) *v1.Event {
	text, err := os.ReadFile("../../../src/webhook/testdata/core_create.json")
	if err != nil {
		b.Fatal(err)
	}
	var review struct{ Request struct{ Object v1.Event } }
	if err := json.Unmarshal(text, &review); err != nil {
		b.Fatal(err)
	}
	event := &review.Request.Object
	// A recorder's own Event has none: the API server adds them.
	event.ManagedFields, event.UID = nil, ""
	if event.Reason != "BackOff" || event.InvolvedObject.Kind != "Pod" {
		b.Fatalf("unexpected Event: %+v", event)
	}
	return event
}

func variants(of *v1.Event, number int, change func(*v1.Event, int)) []*v1.Event {
	events := make([]*v1.Event, number)
	for at := range events {
		events[at] = of.DeepCopy()
		change(events[at], at)
	}
	return events
}
