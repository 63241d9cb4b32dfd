package emitter

import (
	"context"
	"runtime"
	"strings"
	"time"
)

// RecorderIdle waits until client-go's recorders of this process have no queued Event, and no Event whose write or
// whose log line is outstanding. They have no method for that. It returns false if the context ended first.
func RecorderIdle(ctx context.Context) bool {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for recorderIsBusy() {
		select {
		case <-ctx.Done():
			return false
		case <-poll.C:
		}
	}
	return true
}

// recorderIsBusy reads the stacks of all goroutines at one moment.
func recorderIsBusy() bool {
	stacks := make([]byte, 1<<20)
	n := runtime.Stack(stacks, true)
	for n == len(stacks) {
		stacks = make([]byte, 2*len(stacks))
		n = runtime.Stack(stacks, true)
	}
	for stack := range strings.SplitSeq(string(stacks[:n]), "\n\n") {
		if isRecorder(stack) && !isWaiting(stack) {
			return true
		}
	}
	return false
}

// isRecorder selects the goroutines of tools/record and tools/events, and those of their queue.
func isRecorder(stack string) bool {
	return strings.Contains(stack, "k8s.io/client-go/tools/record.") ||
		strings.Contains(stack, "k8s.io/client-go/tools/events.") ||
		strings.Contains(stack, "k8s.io/apimachinery/pkg/watch.(*Broadcaster).")
}

// isWaiting reports whether a goroutine waits for the next Event or a timer. A queue whose reader waits is empty.
func isWaiting(stack string) bool {
	header, _, _ := strings.Cut(stack, "\n")
	if !strings.Contains(header, "[chan receive") && !strings.Contains(header, "[select") {
		return false
	}
	// While these functions run, a goroutine waits for the API server, a retry or a full queue.
	for _, working := range []string{").recordToSink", ".recordEvent(", ").eventf", "(*Broadcaster).distribute"} {
		if strings.Contains(stack, working) {
			return false
		}
	}
	return true
}
