package main

import (
	"strings"
	"testing"
)

func TestWrongFlagsAreRefusedWithWhatToSay(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "--kubeconfig is required"},
		{"--kubeconfig=f --recorder=old", "say legacy, events, create-core or create-events"},
		{"--kubeconfig=f --type=Error", "say Warning or Normal"},
		{"--kubeconfig=f --objects=0", "--objects is below 1"},
		{"--kubeconfig=f --objects=2 --uid=u", "--objects is to be 1"},
		{"--kubeconfig=f --rate=-1", "not negative"},
		{"--kubeconfig=f --messages=0", "a number above 0"},
		{"--kubeconfig=f --spam-filter=off", "default or open"},
		{"--kubeconfig=f --recorder=events --spam-filter=open", "the legacy recorder's"},
		{"--kubeconfig=f --generate-name", "goes with create-core and create-events"},
		{"--kubeconfig=f --in-turn", "--in-turn is the new recorder's"},
		{"--kubeconfig=f more", "unexpected argument"},
	} {
		_, err := ParseOptions(strings.Fields(c.args), t.Output())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q in it", c.args, err, c.want)
		}
	}
}
