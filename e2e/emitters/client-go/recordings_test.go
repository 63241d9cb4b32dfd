package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestARefusalIsLoggedBeforeTheRecorderCountsAsSettled delays the log line of a refusal: waiting for the answer alone
// would miss it.
func TestARefusalIsLoggedBeforeTheRecorderCountsAsSettled(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-answer
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	options, err := ParseOptions([]string{"--kubeconfig", "none", "--namespace", "ns", "--recorder", "events"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	emitter, err := NewNewStyle(options, client)
	if err != nil {
		t.Fatal(err)
	}
	defer emitter.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	if recording() {
		t.Error("nothing was emitted yet")
	}
	emitter.Emit(ctx, References(options)[0], 0)
	<-arrived
	if !recording() {
		t.Error("the API server has not answered yet")
	}
	cancel()
	if recordingEnd(ctx) {
		t.Error("recording ended too early")
	}
	close(answer)
	if !recordingEnd(context.Background()) || recording() {
		t.Error("recording has not ended")
	}
}
