// Package emitter has what the emitters in Go share: their flags, their last line, and the end of client-go's recorders.
package emitter

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// Options are the values of the flags, which ../README.md describes.
type Options struct {
	Kubeconfig, Namespace, Object, UID string
	Type, Reason, Message              string
	Distinct                           bool
	Count                              int
	Interval                           time.Duration
}

// MessageOf returns the message of an occurrence. The first one is 1.
func (o Options) MessageOf(occurrence int) string {
	if o.Distinct {
		return fmt.Sprintf("%s #%d", o.Message, occurrence)
	}
	return o.Message
}

// Deadline is the maximum time from the start until all writes are answered.
func (o Options) Deadline() time.Duration {
	return time.Duration(o.Count)*o.Interval + time.Minute
}

// ParseOptions reads the command line. A wrong flag ends the program with status 2.
func ParseOptions() Options {
	o := Options{}
	// Some libraries register this flag on import.
	if flag.Lookup("kubeconfig") == nil {
		flag.String("kubeconfig", "", "`FILE` with API server and identity")
	}
	flag.StringVar(&o.Namespace, "namespace", "", "`NAMESPACE` of the object and its Events")
	flag.StringVar(&o.Object, "object", "", "`NAME` of the ConfigMap that the Events are about")
	flag.StringVar(&o.UID, "uid", "", "`UID` of the ConfigMap; default: read from the API")
	flag.StringVar(&o.Type, "type", "Warning", "`TYPE` of the Events")
	flag.StringVar(&o.Reason, "reason", "SyncFailed", "`REASON` of the Events")
	flag.StringVar(&o.Message, "message", "could not sync: connection refused", "`TEXT` of the Events")
	messages := flag.String("messages", "identical", "identical, or distinct: with the number of the occurrence")
	flag.IntVar(&o.Count, "count", 1, "number of occurrences")
	interval := flag.Int("interval", 200, "`MILLISECONDS` between two occurrences")
	flag.Parse()
	o.Kubeconfig = flag.Lookup("kubeconfig").Value.String()
	o.Distinct = *messages == "distinct"
	o.Interval = time.Duration(*interval) * time.Millisecond
	if err := check(o, *messages); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	return o
}

func check(o Options, messages string) error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %s", flag.Arg(0))
	case o.Kubeconfig == "":
		return errors.New("--kubeconfig is required")
	case o.Namespace == "":
		return errors.New("--namespace is required")
	case o.Object == "":
		return errors.New("--object is required")
	case messages != "identical" && messages != "distinct":
		return fmt.Errorf("--messages is %q, not identical or distinct", messages)
	case o.Count < 1:
		return errors.New("--count is less than 1")
	case o.Interval < time.Millisecond:
		return errors.New("--interval is less than 1 ms")
	}
	return nil
}

// Summarize prints the last line. The version of the library is the one in go.mod.
func Summarize(library, module string, occurrences, errors int) {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				version = dependency.Version
			}
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(struct {
		Line        string `json:"line"`
		Emitter     string `json:"emitter"`
		Occurrences int    `json:"occurrences"`
		Errors      int    `json:"errors"`
	}{"summary", library + " " + version, occurrences, errors})
}
