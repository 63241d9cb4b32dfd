package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"
)

// The values of --recorder.
const (
	recorderLegacy       = "legacy"
	recorderEvents       = "events"
	recorderCreateCore   = "create-core"
	recorderCreateEvents = "create-events"
)

// settleTime is the default of --settle: the legacy recorder repeats a call without an answer for two minutes.
const settleTime = 5 * time.Minute

// A limiter of client-go's correlator: default or disabled.
const (
	limitOpen    = "open"
	limitDefault = "default"
)

// Options are the parsed and validated flags.
type Options struct {
	Kubeconfig   string
	As           string
	Namespace    string
	Recorder     string
	Objects      int
	NamePrefix   string
	UID          string
	Kind         string
	APIVersion   string
	FieldPath    string
	Type         string
	Reason       string
	Action       string
	Message      string
	Messages     string
	Component    string
	Instance     string
	Rate         float64
	Count        int
	Duration     time.Duration
	Linger       time.Duration
	Settle       time.Duration
	SpamFilter   string
	Aggregation  string
	GenerateName bool
	InTurn       bool

	// Number of different messages of an object; 0: no two occurrences share one.
	variety int
}

// ParseOptions parses and validates the command line.
func ParseOptions(args []string, output io.Writer) (Options, error) {
	var o Options
	f := flag.NewFlagSet("emitter-go", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file`: the API server and the identity (required)")
	f.StringVar(&o.As, "as", "", "impersonate this `user`")
	f.StringVar(&o.Namespace, "namespace", "default", "namespace of the objects and of their Events")
	f.StringVar(&o.Recorder, "recorder", recorderLegacy,
		"legacy (tools/record), events (tools/events), create-core or create-events (one CREATE per occurrence)")
	f.IntVar(&o.Objects, "objects", 1, "number of objects that the Events are about")
	f.StringVar(&o.NamePrefix, "name-prefix", "storm", "objects are named PREFIX-0, PREFIX-1, ...; uids follow from the names")
	f.StringVar(&o.UID, "uid", "", "uid of the object, where it exists; with --objects 1")
	f.StringVar(&o.Kind, "kind", "Pod", "kind of the objects")
	f.StringVar(&o.APIVersion, "api-version", "v1", "apiVersion of the objects")
	f.StringVar(&o.FieldPath, "field-path", "", "fieldPath of the references to the objects")
	f.StringVar(&o.Type, "type", "Warning", "Warning or Normal")
	f.StringVar(&o.Reason, "reason", "BackOff", "reason of the Events")
	f.StringVar(&o.Action, "action", "Restarting", "action of the Events (the legacy recorder has none)")
	f.StringVar(&o.Message, "message", "Back-off restarting failed container", "text that every message begins with")
	f.StringVar(&o.Messages, "messages", "identical",
		"identical, distinct (each occurrence of an object has its own) or a `number` of messages used in turn")
	f.StringVar(&o.Component, "component", "emitter", "source.component and reportingController")
	f.StringVar(&o.Instance, "instance", "emitter-0", "source.host and reportingInstance")
	f.Float64Var(&o.Rate, "rate", 50, "occurrences per second over all objects together; 0: unlimited")
	f.IntVar(&o.Count, "count", 0, "occurrences per object; 0: until --duration or a signal")
	f.DurationVar(&o.Duration, "duration", 0, "stop emitting after this time; 0: at --count or a signal")
	f.DurationVar(&o.Linger, "linger", 0,
		"keep running after the last occurrence (timers of the new recorder); negative: until a signal")
	f.DurationVar(&o.Settle, "settle", settleTime, "maximum time to wait for the remaining answers")
	f.StringVar(&o.SpamFilter, "spam-filter", limitDefault, "spam filter of the legacy recorder: default or open")
	f.StringVar(&o.Aggregation, "aggregation", limitDefault, "aggregation of the legacy recorder: default or open")
	f.BoolVar(&o.GenerateName, "generate-name", false, "create-core and create-events let the API server generate the names")
	f.BoolVar(&o.InTurn, "in-turn", false,
		"create-core and create-events wait for each answer; the new recorder does before an object's second and third occurrence")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, o.check()
}

func (o *Options) check() error {
	variety, err := parseVariety(o.Messages)
	if err != nil {
		return err
	}
	o.variety = variety
	creates := o.Recorder == recorderCreateCore || o.Recorder == recorderCreateEvents
	switch {
	case o.Kubeconfig == "":
		return errors.New("--kubeconfig is required")
	case !creates && o.Recorder != recorderLegacy && o.Recorder != recorderEvents:
		return fmt.Errorf("--recorder is %q, must be legacy, events, create-core or create-events", o.Recorder)
	case o.Type != "Warning" && o.Type != "Normal":
		return fmt.Errorf("--type is %q, must be Warning or Normal", o.Type)
	case o.Objects < 1:
		return errors.New("--objects must be at least 1")
	case o.UID != "" && o.Objects != 1:
		return errors.New("--uid needs --objects 1")
	case o.Rate < 0 || o.Count < 0 || o.Duration < 0 || o.Settle < 0:
		return errors.New("--rate, --count, --duration and --settle must not be negative")
	case !isLimit(o.SpamFilter) || !isLimit(o.Aggregation):
		return errors.New("--spam-filter and --aggregation must be default or open")
	case o.Recorder != recorderLegacy && (o.SpamFilter == limitOpen || o.Aggregation == limitOpen):
		return errors.New("--spam-filter and --aggregation need --recorder legacy")
	case o.GenerateName && !creates:
		return errors.New("--generate-name needs --recorder create-core or create-events")
	case o.InTurn && o.Recorder == recorderLegacy:
		return errors.New("--in-turn has no use with --recorder legacy, which waits for each answer")
	}
	return nil
}

func isLimit(word string) bool { return word == limitOpen || word == limitDefault }

func parseVariety(messages string) (int, error) {
	switch messages {
	case "identical":
		return 1, nil
	case "distinct":
		return 0, nil
	}
	n, err := strconv.Atoi(messages)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("--messages is %q, must be identical, distinct or a number above 0", messages)
	}
	return n, nil
}
