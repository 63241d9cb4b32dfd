// Command emitter-go floods an API server with Events through client-go's own recorders and prints its calls and
// their answers as JSON lines. README.md describes flags and lines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

// Emitter reports occurrences.
type Emitter interface {
	// Emit reports an object's n-th occurrence (from 0). It returns false if the context ended first.
	Emit(ctx context.Context, ref *corev1.ObjectReference, n int) bool
	// Settle waits until all occurrences are answered.
	Settle(ctx context.Context, totals []ObjectTotal) bool
	Stop()
}

func main() {
	options, err := ParseOptions(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "emitter-go:", err)
		os.Exit(1)
	}
}

func run(o Options) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	config, err := clientConfig(o)
	if err != nil {
		return err
	}
	journal := NewJournal(os.Stdout)
	CaptureLogs(journal)
	config.Wrap(transport.WrapperFunc(journal.Record))
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	emitter, err := newEmitter(o, client, journal)
	if err != nil {
		return err
	}
	totals := storm(ctx, o, emitter)
	settleCtx, settleCancel := context.WithTimeout(context.Background(), o.Settle)
	settled := emitter.Settle(settleCtx, totals)
	settleCancel()
	linger(ctx, o.Linger)
	emitter.Stop()
	return journal.Summarize(Summary{
		Recorder: o.Recorder, Namespace: o.Namespace, Settled: settled, Objects: totals,
	})
}

// clientConfig fails if the API server is unreachable: the recorders would only retry.
func clientConfig(o Options) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Impersonate.UserName = o.As
	// No client-side rate limit: only the recorder or the API server may be slow.
	config.QPS = -1
	// Readable bodies.
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	probe, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	if _, err := probe.ServerVersion(); err != nil {
		return nil, fmt.Errorf("asking %s for its version: %w", config.Host, err)
	}
	return config, nil
}

func newEmitter(o Options, client kubernetes.Interface, journal *Journal) (Emitter, error) {
	switch o.Recorder {
	case recorderLegacy:
		return NewLegacy(o, client), nil
	case recorderEvents:
		return NewNewStyle(o, client)
	default:
		return NewCreates(o, client, journal), nil
	}
}

// storm emits in rounds with one occurrence per object, and returns the emitted numbers.
func storm(ctx context.Context, o Options, emitter Emitter) []ObjectTotal {
	if o.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Duration)
		defer cancel()
	}
	refs := References(o)
	totals := make([]ObjectTotal, len(refs))
	for i, ref := range refs {
		totals[i] = ObjectTotal{Name: ref.Name, UID: string(ref.UID)}
	}
	pace := Pace{start: time.Now(), rate: o.Rate}
	for n := 0; o.Count == 0 || n < o.Count; n++ {
		for i, ref := range refs {
			if !pace.Wait(ctx, n*len(refs)+i) || !emitter.Emit(ctx, ref, n) {
				return totals
			}
			totals[i].Occurrences++
		}
	}
	return totals
}

func linger(ctx context.Context, d time.Duration) {
	if d == 0 {
		return
	}
	var over <-chan time.Time
	if d > 0 {
		over = time.After(d)
	}
	select {
	case <-ctx.Done():
	case <-over:
	}
}
