package main

import (
	"context"
	"time"
)

// Pace schedules the k-th occurrence (from 0): evenly spaced, late ones at once, so that a slow answer delays
// occurrences but loses none.
type Pace struct {
	start time.Time
	rate  float64
}

// Wait returns when occurrence k is due. It returns false if the context ended first.
func (p Pace) Wait(ctx context.Context, k int) bool {
	if ctx.Err() != nil {
		return false
	}
	ahead := time.Until(p.due(k))
	if ahead <= 0 {
		return true
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (p Pace) due(k int) time.Time {
	if p.rate == 0 {
		return p.start
	}
	return p.start.Add(time.Duration(float64(k) / p.rate * float64(time.Second)))
}
