package main

import (
	"bytes"
	"context"
	"runtime"
	"time"
)

// recordingPoll is the poll interval of goroutines, whose end has no notification.
const recordingPoll = time.Millisecond

// recordingEnd waits until client-go's new recorder processes no Event. It logs a refusal after its sink has
// returned, in a goroutine that cannot be awaited, and a program that exits before loses the line.
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

// recording reports whether there is such a goroutine: every version of client-go has this function on its stack from
// before the call of the sink until the answer was logged.
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
