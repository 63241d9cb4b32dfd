package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Concurrent requests, enough to keep an API server busy.
const maxCreates = 16

// Creates is a client without a recorder: it sends one CREATE per occurrence, each under a new name.
type Creates struct {
	client  kubernetes.Interface
	journal *Journal
	options Options
	slots   chan struct{}
	open    sync.WaitGroup

	mu       sync.Mutex
	lastName int64
}

// NewCreates creates the client.
func NewCreates(o Options, client kubernetes.Interface, journal *Journal) *Creates {
	slots := maxCreates
	if o.InTurn {
		slots = 1
	}
	return &Creates{client: client, journal: journal, options: o, slots: make(chan struct{}, slots)}
}

// Emit sends the CREATE of the n-th occurrence of an object without waiting for its answer; with --in-turn, the next call waits.
func (c *Creates) Emit(ctx context.Context, ref *corev1.ObjectReference, n int) bool {
	select {
	case <-ctx.Done():
		return false
	case c.slots <- struct{}{}:
	}
	c.open.Add(1)
	go func() {
		defer func() { <-c.slots; c.open.Done() }()
		// The context of the storm ends with it; sent requests must still be answered.
		c.create(context.Background(), ref, n)
	}()
	return true
}

func (c *Creates) create(ctx context.Context, ref *corev1.ObjectReference, n int) {
	var err error
	if c.options.Recorder == recorderCreateCore {
		_, err = c.client.CoreV1().Events(ref.Namespace).Create(ctx, c.coreEvent(ref, n), metav1.CreateOptions{})
	} else {
		_, err = c.client.EventsV1().Events(ref.Namespace).Create(ctx, c.event(ref, n), metav1.CreateOptions{})
	}
	if _, answered := err.(interface{ Status() metav1.Status }); err != nil && !answered {
		c.journal.Logged("error", "creating an Event", err)
	}
}

func (c *Creates) coreEvent(ref *corev1.ObjectReference, n int) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta:          c.name(ref, "."),
		InvolvedObject:      *ref,
		Type:                c.options.Type,
		Reason:              c.options.Reason,
		Message:             c.options.MessageOf(n),
		Source:              corev1.EventSource{Component: c.options.Component, Host: c.options.Instance},
		ReportingController: c.options.Component,
		ReportingInstance:   c.options.Instance,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
}

func (c *Creates) event(ref *corev1.ObjectReference, n int) *eventsv1.Event {
	return &eventsv1.Event{
		// The new API refuses a generateName that ends in a dot.
		ObjectMeta:          c.name(ref, "-"),
		Regarding:           *ref,
		Type:                c.options.Type,
		Reason:              c.options.Reason,
		Action:              c.options.Action,
		Note:                c.options.MessageOf(n),
		EventTime:           metav1.NowMicro(),
		ReportingController: c.options.Component,
		ReportingInstance:   c.options.Instance,
	}
}

func (c *Creates) name(ref *corev1.ObjectReference, separator string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: ref.Namespace}
	if c.options.GenerateName {
		meta.GenerateName = ref.Name + separator
		return meta
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// As client-go names Events, but unique.
	c.lastName = max(c.lastName+1, time.Now().UnixNano())
	meta.Name = fmt.Sprintf("%s.%x", ref.Name, c.lastName)
	return meta
}

// Settle returns when every CREATE was answered.
func (c *Creates) Settle(ctx context.Context, _ []ObjectTotal) bool {
	done := make(chan struct{})
	go func() { c.open.Wait(); close(done) }()
	select {
	case <-ctx.Done():
		return false
	case <-done:
		return true
	}
}

// Stop does nothing.
func (c *Creates) Stop() {}
