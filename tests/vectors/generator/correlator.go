package main

import (
	"fmt"
	"log"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
)

type corr struct {
	clk *clocktesting.FakePassiveClock
	c   *record.EventCorrelator
	agg bool // set by MessageFunc: the current event was aggregated
}

func newCorr(o opts) *corr {
	k := &corr{clk: clocktesting.NewFakePassiveClock(epoch)}
	k.c = record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
		BurstSize:            o.burst,
		QPS:                  o.qps(),
		MaxEvents:            o.max,
		MaxIntervalInSeconds: o.interval,
		Clock:                k.clk,
		MessageFunc: func(e *v1.Event) string {
			k.agg = true
			return record.EventAggregatorByReasonMessageFunc(e)
		},
	})
	return k
}

// event builds what the recorder would have built.
func (k *corr) event(e ev, now time.Time) *v1.Event {
	t := metav1.NewTime(now)
	return &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%v.%x", e.name, now.UnixNano()), Namespace: e.ns},
		InvolvedObject: v1.ObjectReference{Kind: e.kind, Namespace: e.ns, Name: e.name,
			UID: types.UID(e.uid), APIVersion: e.apiv, FieldPath: e.fp},
		Reason: e.rsn, Message: e.msg, FirstTimestamp: t, LastTimestamp: t, Count: 1, Type: e.typ,
		Source:              v1.EventSource{Component: e.comp, Host: e.host},
		ReportingController: e.comp, ReportingInstance: e.host,
	}
}

// runAt correlates at the current time of the clock, whatever e.at says.
func (k *corr) runAt(e ev) bool {
	r, err := k.c.EventCorrelate(k.event(e, k.clk.Now()))
	return err == nil && !r.Skip
}

func (k *corr) run(e ev) *record.EventCorrelateResult {
	now := epoch.Add(time.Duration(e.at) * time.Millisecond)
	k.clk.SetTime(now)
	k.agg = false
	r, err := k.c.EventCorrelate(k.event(e, now))
	if err != nil {
		log.Fatal(err)
	}
	return r
}
