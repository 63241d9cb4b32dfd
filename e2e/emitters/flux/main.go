// Command flux is an operator that reconciles the ConfigMaps of a namespace with controller-runtime, and reports the
// occurrences through the recorder of Flux (github.com/fluxcd/pkg/runtime/events).
//
// Client, logger and recorder are set up as in the package documentation of pkg/runtime and as in the controllers of
// Flux: client.GetConfigOrDie, logger.NewLogger with the defaults of its flags, events.NewRecorder with the manager and
// without a webhook address, so that it sends Kubernetes Events only. Each call of Reconcile for the ConfigMap --object
// reports one occurrence with an annotation, and asks to be called again after --interval. The recorder returns no
// error, so there are no error lines.
//
// The default of this recorder is client-go's legacy one (core/v1). Its spam filter drops all but 25 occurrences of
// an object in 5 minutes.
//
// The identity of --kubeconfig needs get, list and watch of ConfigMaps, and create and patch of Events of the core API
// group.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1"
	fluxclient "github.com/fluxcd/pkg/runtime/client"
	"github.com/fluxcd/pkg/runtime/events"
	"github.com/fluxcd/pkg/runtime/logger"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"squelch/e2e/emitters/emitter"
)

const controllerName = "configmap-controller"

func main() {
	options := emitter.ParseOptions()
	logger.SetLogger(logger.NewLogger(logger.Options{LogEncoding: "json", LogLevel: "info"}))
	if err := run(ctrl.SetupSignalHandler(), options); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	emitter.Summarize("flux", "github.com/fluxcd/pkg/runtime", options.Count, 0)
}

func run(ctx context.Context, o emitter.Options) error {
	config := fluxclient.GetConfigOrDie(fluxclient.Options{QPS: 50, Burst: 300})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{o.Namespace: {}}},
		Metrics: metricsserver.Options{BindAddress: "0"},
		Logger:  ctrl.Log,
	})
	if err != nil {
		return err
	}
	recorder, err := events.NewRecorder(ctrl.Log, "", controllerName, events.WithManager(mgr))
	if err != nil {
		return err
	}
	reconciler := &Reconciler{Client: mgr.GetClient(), Recorder: recorder, options: o, done: make(chan struct{})}
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
	events.Recorder

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
	annotations := map[string]string{eventv1.Group + "/" + eventv1.MetaRevisionKey: configMap.ResourceVersion}
	r.AnnotatedEventf(configMap, nil, annotations, r.options.Type, r.options.Reason, "Sync", "%s",
		r.options.MessageOf(r.emitted))
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
