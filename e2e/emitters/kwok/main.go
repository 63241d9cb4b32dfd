// Command kwok runs kwok with Stages that report the occurrences: kwok is the emitter, and this program writes its
// configuration, waits and stops it.
//
// kwok's documentation shows an Event as a step of a Stage. A Stage emits one Event with a fixed message each time it
// is applied, so there is one Stage for each occurrence. Each selects the ConfigMap --object by the annotation that the
// previous one sets, and waits for --interval. kwok's command runs in this process, with the same calls as in its
// cmd/kwok, so that the program can await the answers to its writes. Stages report no errors, so there are no error
// lines.
//
// kwok reads the object itself, so --uid is only compared. Its recorder is client-go's legacy one (core/v1) with the
// defaults: its spam filter drops all but 25 occurrences of an object in 5 minutes.
//
// The identity of --kubeconfig needs list and watch of Nodes, Pods and ConfigMaps in all namespaces (kwok watches
// nothing less), patch of the ConfigMap, and create and patch of Events of the core API group.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"

	"squelch/e2e/emitters/emitter"
)

// Annotation of the ConfigMap: the number of the last occurrence.
const annotation = "emitter-kwok/occurrence"

func main() {
	options := emitter.ParseOptions()
	ctx, stop := context.WithTimeout(signals.SetupSignalContext(), options.Deadline())
	if err := run(ctx, stop, options); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	emitter.Summarize("kwok", "sigs.k8s.io/kwok", options.Count, 0)
}

// run emits the occurrences. It calls stop when kwok must end.
func run(ctx context.Context, stop context.CancelFunc, o emitter.Options) error {
	defer stop()
	restConfig, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return err
	}
	// What an earlier run has left.
	configMap, err := client.CoreV1().ConfigMaps(o.Namespace).Patch(
		ctx, o.Object, types.MergePatchType, annotate(0), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if o.UID != "" && o.UID != string(configMap.UID) {
		return fmt.Errorf("--uid: the ConfigMap %s has the uid %s", o.Object, configMap.UID)
	}
	stages, err := writeStages(o)
	if err != nil {
		return err
	}
	defer os.Remove(stages)
	ended := make(chan error, 1)
	go func() {
		// The Stages need no node, but kwok does not start without one of its flags for nodes.
		ended <- runKwok(ctx, "--config", stages, "--kubeconfig", o.Kubeconfig, "--manage-single-node", "none")
		stop()
	}()
	emitted := waitForLast(ctx, client, configMap, o)
	if emitted == nil && !emitter.RecorderIdle(ctx) {
		emitted = fmt.Errorf("the recorder still had an unanswered write at the deadline")
	}
	stop()
	if err := <-ended; err != nil {
		return err
	}
	return emitted
}

// runKwok does what main of cmd/kwok does.
func runKwok(ctx context.Context, args ...string) error {
	os.Args = append([]string{"kwok"}, args...)
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ = log.InitFlags(ctx, flags)
	ctx, err := config.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	command := cmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}

// writeStages returns the name of a new file with one Stage for each occurrence.
func writeStages(o emitter.Options) (string, error) {
	file, err := os.CreateTemp("", "stages-*.yaml")
	if err != nil {
		return "", err
	}
	defer file.Close()
	for occurrence := 1; occurrence <= o.Count; occurrence++ {
		text, err := json.Marshal(stage(o, occurrence))
		if err != nil {
			return "", err
		}
		if _, err := fmt.Fprintf(file, "---\n%s\n", text); err != nil {
			return "", err
		}
	}
	return file.Name(), nil
}

func stage(o emitter.Options, occurrence int) v1alpha1.Stage {
	is := func(key, value string) v1alpha1.MatchExpression {
		return v1alpha1.MatchExpression{
			JQ: &v1alpha1.SelectorJQ{Key: key, Operator: v1alpha1.SelectorOpIn, Values: []string{value}},
		}
	}
	delay, merge := o.Interval.Milliseconds(), v1alpha1.StagePatchTypeMergePatch
	return v1alpha1.Stage{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.StageKind},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("occurrence-%d", occurrence)},
		Spec: v1alpha1.StageSpec{
			ResourceRef: v1alpha1.StageResourceRef{APIGroup: "v1", Kind: "ConfigMap"},
			Selector: &v1alpha1.StageSelector{MatchExpressions: []v1alpha1.MatchExpression{
				is(".metadata.namespace", o.Namespace),
				is(".metadata.name", o.Object),
				is(fmt.Sprintf(".metadata.annotations[%q]", annotation), strconv.Itoa(occurrence-1)),
			}},
			Delay: &v1alpha1.StageDelay{DurationMilliseconds: &delay},
			Steps: []v1alpha1.StageStep{
				{Event: &v1alpha1.StageEvent{Type: o.Type, Reason: o.Reason, Message: o.MessageOf(occurrence)}},
				{Patch: &v1alpha1.StagePatch{Type: &merge, Template: string(annotate(occurrence))}},
			},
		},
	}
}

// annotate returns a merge patch of the ConfigMap.
func annotate(occurrence int) []byte {
	return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, annotation, occurrence)
}

// waitForLast returns when kwok has handed the last occurrence to its recorder and set the annotation.
func waitForLast(ctx context.Context, client kubernetes.Interface, configMap *corev1.ConfigMap, o emitter.Options) error {
	watch, err := client.CoreV1().ConfigMaps(o.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector:   "metadata.name=" + o.Object,
		ResourceVersion: configMap.ResourceVersion,
	})
	if err != nil {
		return err
	}
	defer watch.Stop()
	last := "0"
	for last != strconv.Itoa(o.Count) {
		event, open := <-watch.ResultChan()
		if !open {
			return fmt.Errorf("%s of %d occurrences were emitted before the deadline", last, o.Count)
		}
		if seen, ok := event.Object.(*corev1.ConfigMap); ok {
			last = seen.Annotations[annotation]
		}
	}
	return nil
}
