// Command argo-cd reports the occurrences with the audit logger of Argo CD, as its application controller reports a
// change of an Application's health or sync status (NewAuditLogger with DefaultEnableEventList, and LogAppEvent). Client
// and log format are set up as in argocd-application-controller: SetK8SConfigDefaults, and logs in JSON.
//
// The audit logger knows no ConfigMaps. The Events are about an Application that exists only in memory and has the
// name, namespace and uid of the ConfigMap --object. The API server does not read the object of an Event.
//
// Each occurrence is one CREATE, answered before the next one. The audit logger logs an error and returns none, so
// there are no error lines.
//
// The identity of --kubeconfig needs get of ConfigMaps (without --uid), and create of Events of the core API group.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"
	utillog "github.com/argoproj/argo-cd/v3/util/log"
	log "github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"squelch/e2e/emitters/emitter"
)

func main() {
	options := emitter.ParseOptions()
	log.SetFormatter(utillog.CreateFormatter(utillog.JsonFormat))
	ctx, cancel := context.WithTimeout(context.Background(), options.Deadline())
	defer cancel()
	if err := run(ctx, options); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	emitter.Summarize("argo-cd", "github.com/argoproj/argo-cd/v3", options.Count, 0)
}

func run(ctx context.Context, o emitter.Options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return err
	}
	if err := v1alpha1.SetK8SConfigDefaults(config); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	app, err := application(ctx, client, o)
	if err != nil {
		return err
	}
	auditLogger := argo.NewAuditLogger(
		client, o.Namespace, common.CommandApplicationController, argo.DefaultEnableEventList())
	info := argo.EventInfo{Type: o.Type, Reason: o.Reason}
	for occurrence := 1; occurrence <= o.Count; occurrence++ {
		if occurrence > 1 {
			time.Sleep(o.Interval)
		}
		// It takes no context.
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			auditLogger.LogAppEvent(app, info, o.MessageOf(occurrence), "", nil)
		}()
		select {
		case <-answered:
		case <-ctx.Done():
			return fmt.Errorf("occurrence %d of %d was not answered before the deadline", occurrence, o.Count)
		}
	}
	return nil
}

// application returns an Application with the identity of the ConfigMap.
func application(ctx context.Context, client kubernetes.Interface, o emitter.Options) (*v1alpha1.Application, error) {
	app := &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{
		Name: o.Object, Namespace: o.Namespace, UID: types.UID(o.UID),
	}}
	if o.UID != "" {
		return app, nil
	}
	configMap, err := client.CoreV1().ConfigMaps(o.Namespace).Get(ctx, o.Object, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	app.UID = configMap.UID
	return app, nil
}
