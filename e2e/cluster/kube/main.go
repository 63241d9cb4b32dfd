// Command kube is the Kubernetes that squelch is tested against: etcd, the API server, the controller
// manager, the scheduler, the kubelet and kube-proxy, unchanged, in one static binary.
//
// One binary, because the six share nearly all of their code: it is 132 MB instead of 450 and links once.
// The component is chosen by the name it is called under (a symbolic link) or by the first argument:
//
//	kube kube-apiserver --version
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components holds what runs under which name. The arguments are those after the name.
var components = map[string]func(args []string) int{
	"etcd": func(args []string) int {
		etcdmain.Main(append([]string{"etcd"}, args...))
		return 0
	},
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              command(proxy.NewProxyCommand),
	// The kubelet takes its flags apart itself and expects them where the process has them.
	"kubelet": command(kubeletCommand),
}

// kubeletCommand makes the kubelet's command, which takes a context from Kubernetes 1.31 on.
func kubeletCommand() *cobra.Command {
	switch create := any(kubelet.NewKubeletCommand).(type) {
	case func() *cobra.Command:
		return create()
	case func(context.Context) *cobra.Command:
		return create(context.Background())
	default:
		panic(fmt.Sprintf("this version's NewKubeletCommand is a %T", create))
	}
}

// command runs a component the way its own main does. The command is made only when it is chosen: making
// one registers flags and metrics that the others would trip over.
func command(create func() *cobra.Command) func([]string) int {
	return func(args []string) int {
		created := create()
		created.SetArgs(args)
		return cli.Run(created)
	}
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if _, known := components[name]; !known && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	run, known := components[name]
	if !known {
		names := make([]string, 0, len(components))
		for each := range components {
			names = append(names, each)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "kube: no component %q; there are %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Args = append([]string{name}, args...)
	os.Exit(run(args))
}
