// An exporter in the manner of kubernetes-event-exporter up to v1.1, reduced to its filter: an informer takes new and
// updated Events, and ignores an Event whose time is older than --max-age. The time is lastTimestamp, or eventTime if
// lastTimestamp is not set. Prints one JSON object per line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// line is what this program reports of one Event: delivered, or discarded because of its age.
type line struct {
	Line            string `json:"line"`
	Change          string `json:"change"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	Reason          string `json:"reason"`
	Message         string `json:"message"`
	Count           int32  `json:"count"`
	SeriesCount     int32  `json:"seriesCount"`
	AgeSeconds      int64  `json:"ageSeconds"`
	ResourceVersion string `json:"resourceVersion"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "API server and identity")
	namespace := flag.String("namespace", "", "namespace of the Events; default: all")
	maxAge := flag.Duration("max-age", 5*time.Second, "maximum age of an Event")
	flag.Parse()
	if err := run(*kubeconfig, *namespace, *maxAge); err != nil {
		fmt.Fprintln(os.Stderr, "age-filter:", err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace string, maxAge time.Duration) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	var lock sync.Mutex
	out := json.NewEncoder(os.Stdout)
	report := func(value any) {
		lock.Lock()
		defer lock.Unlock()
		if err := out.Encode(value); err != nil {
			fmt.Fprintln(os.Stderr, "age-filter:", err)
			os.Exit(1)
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().Events().Informer()
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { report(filter("added", object.(*corev1.Event), maxAge)) },
		UpdateFunc: func(_, object any) { report(filter("modified", object.(*corev1.Event), maxAge)) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return ctx.Err()
	}
	report(map[string]string{"line": "ready"})
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

func filter(change string, event *corev1.Event, maxAge time.Duration) line {
	at := event.LastTimestamp.Time
	if at.IsZero() {
		at = event.EventTime.Time
	}
	age := time.Since(at)
	report := line{
		Line:            "delivered",
		Change:          change,
		Namespace:       event.Namespace,
		Name:            event.Name,
		Reason:          event.Reason,
		Message:         event.Message,
		Count:           event.Count,
		AgeSeconds:      int64(age.Seconds()),
		ResourceVersion: event.ResourceVersion,
	}
	if age > maxAge {
		report.Line = "discarded"
	}
	if event.Series != nil {
		report.SeriesCount = event.Series.Count
	}
	return report
}
