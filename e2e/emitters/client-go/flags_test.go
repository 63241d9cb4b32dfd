package main

import (
	"strings"
	"testing"
)

func TestInvalidFlagsAreRefusedWithTheValidValues(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "--kubeconfig is required"},
		{"--kubeconfig=f --recorder=old", "must be legacy, events, create-core or create-events"},
		{"--kubeconfig=f --type=Error", "must be Warning or Normal"},
		{"--kubeconfig=f --objects=0", "--objects must be at least 1"},
		{"--kubeconfig=f --objects=2 --uid=u", "--uid needs --objects 1"},
		{"--kubeconfig=f --rate=-1", "must not be negative"},
		{"--kubeconfig=f --messages=0", "a number above 0"},
		{"--kubeconfig=f --spam-filter=off", "default or open"},
		{"--kubeconfig=f --recorder=events --spam-filter=open", "need --recorder legacy"},
		{"--kubeconfig=f --generate-name", "needs --recorder create-core or create-events"},
		{"--kubeconfig=f --in-turn", "--in-turn has no use with --recorder legacy"},
		{"--kubeconfig=f more", "unexpected argument"},
	} {
		_, err := ParseOptions(strings.Fields(c.args), t.Output())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q in it", c.args, err, c.want)
		}
	}
}
