package main

import (
	"context"
	"testing"
	"time"
)

func TestOccurrencesAreSpreadEvenly(t *testing.T) {
	start := time.Now()
	if got := (Pace{start: start, rate: 50}).due(100).Sub(start); got != 2*time.Second {
		t.Errorf("occurrence 100 at 50/s is due after %v", got)
	}
	if got := (Pace{start: start}).due(100).Sub(start); got != 0 {
		t.Errorf("without a rate occurrence 100 is due after %v", got)
	}
}

func TestNoOccurrenceFollowsTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if (Pace{start: time.Now()}).Wait(ctx, 0) {
		t.Error("due after the end")
	}
}
