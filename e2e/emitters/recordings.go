package main

import (
	"bytes"
	"context"
	"runtime"
	"time"
)

// recordingPoll is how often the goroutines are looked at: nothing tells that one has ended.
const recordingPoll = time.Millisecond

// recordingEnd waits until client-go's new recorder is at work on no Event. It logs a refusal after its sink has
// returned, in a goroutine that nobody can wait for, and a program that ends before loses that line.
func recordingEnd(ctx context.Context) bool {
	poll := time.NewTicker(recordingPoll)
	defer poll.Stop()
	for recording() {
		select {
		case <-ctx.Done():
			return false
		case <-poll.C:
		}
	}
	return true
}

// recording tells whether there is such a goroutine: every version of client-go has that function on its stack from
// before the sink is called until the answer has been logged.
func recording() bool {
	stacks := make([]byte, 64<<10)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			return bytes.Contains(stacks[:n], []byte("eventBroadcasterImpl).recordToSink"))
		}
		stacks = make([]byte, 2*len(stacks))
	}
}
