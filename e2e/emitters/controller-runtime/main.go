// Command controller-runtime is an operator that reconciles the ConfigMaps of a namespace with controller-runtime, and
// reports the occurrences through its recorder of events.k8s.io/v1 Events.
//
// It follows the example of controller-runtime's package recorder (manager.GetEventRecorder, and Eventf in Reconcile)
// and its examples/builtins (zap.New() as the logger). Each call of Reconcile for the ConfigMap --object reports one
// occurrence and asks to be called again after --interval. The recorder returns no error, so there are no error lines.
//
// The recorder sends the first occurrence and the second one. It keeps the following ones until its timers run, after
// 6 to 30 minutes. This program does not wait for them: they are lost with it, as in every operator that ends earlier.
//
// The identity of --kubeconfig needs get, list and watch of ConfigMaps, and create and patch of Events of
// events.k8s.io.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"squelch/e2e/emitters/emitter"
)

func main() {
	options := emitter.ParseOptions()
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), options); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	emitter.Summarize("controller-runtime", "sigs.k8s.io/controller-runtime", options.Count, 0)
}

func run(ctx context.Context, o emitter.Options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{o.Namespace: {}}},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	reconciler := &Reconciler{
		Client:   mgr.GetClient(),
		Recorder: mgr.GetEventRecorder("configmap-controller"),
		options:  o,
		done:     make(chan struct{}),
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconciler); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, o.Deadline())
	defer stop()
	missing := make(chan error, 1)
	go func() {
		missing <- reconciler.wait(ctx)
		stop()
	}()
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	return <-missing
}

// Reconciler reports one occurrence in each reconciliation of one ConfigMap.
type Reconciler struct {
	client.Client
	Recorder events.EventRecorder

	options emitter.Options
	emitted int
	next    time.Time
	done    chan struct{}
}

// Reconcile is not called concurrently for one object.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	configMap := &corev1.ConfigMap{}
	if err := r.Get(ctx, request.NamespacedName, configMap); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if request.Name != r.options.Object || r.emitted == r.options.Count {
		return ctrl.Result{}, nil
	}
	// A change of the ConfigMap also leads to a call.
	if early := time.Until(r.next); early > 0 {
		return ctrl.Result{RequeueAfter: early}, nil
	}
	if r.options.UID != "" {
		configMap.UID = types.UID(r.options.UID)
	}
	r.emitted++
	r.next = time.Now().Add(r.options.Interval)
	r.Recorder.Eventf(configMap, nil, r.options.Type, r.options.Reason, "Sync", "%s", r.options.MessageOf(r.emitted))
	if r.emitted == r.options.Count {
		close(r.done)
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: r.options.Interval}, nil
}

// wait returns when all occurrences were handed to the recorder and its writes are answered.
func (r *Reconciler) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("the ConfigMap %s was not reconciled %d times before the deadline", r.options.Object, r.options.Count)
	case <-r.done:
	}
	if !emitter.RecorderIdle(ctx) {
		return fmt.Errorf("the recorder still had an unanswered write at the deadline")
	}
	return nil
}
