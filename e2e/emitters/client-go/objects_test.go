package main

import "testing"

func TestAnObjectHasTheUidThatEmitterKubeGivesIt(t *testing.T) {
	// The same value is in e2e/src/bin/emitter-kube/objects.rs.
	if got, want := string(stableUID("default", "Pod", "storm-0")), "20c01afa-fa15-140e-3bd8-bd8fb59a654d"; got != want {
		t.Errorf("stableUID = %s, want %s", got, want)
	}
}

func TestMessagesRepeatAsTheFlagSays(t *testing.T) {
	for _, c := range []struct {
		messages string
		want     [3]string
	}{
		{"identical", [3]string{"m", "m", "m"}},
		{"distinct", [3]string{"m (0)", "m (1)", "m (2)"}},
		{"2", [3]string{"m (0)", "m (1)", "m (0)"}},
	} {
		o, err := ParseOptions([]string{"--kubeconfig=f", "--message=m", "--messages=" + c.messages}, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]string{o.MessageOf(0), o.MessageOf(1), o.MessageOf(2)}; got != c.want {
			t.Errorf("--messages %s: %q, want %q", c.messages, got, c.want)
		}
	}
}

func TestAnObjectThatExistsHasItsOwnUid(t *testing.T) {
	o, err := ParseOptions([]string{"--kubeconfig=f", "--uid=u-1"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if refs := References(o); len(refs) != 1 || refs[0].UID != "u-1" {
		t.Errorf("References = %v", refs)
	}
}
