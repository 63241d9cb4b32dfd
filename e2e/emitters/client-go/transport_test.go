package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// exchange sends one request through the recorded transport, checks that both sides get the whole bodies, and returns
// the line of the call.
func exchange(t *testing.T, journal *Journal, out *bytes.Buffer, method, path, sent string, status int, answer string) Call {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != sent {
			t.Errorf("the server got %q, %v", got, err)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	request, err := http.NewRequest(method, server.URL+path, strings.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	response, err := journal.Record(http.DefaultTransport).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != answer {
		t.Errorf("the client got %q, %v", got, err)
	}
	var call Call
	if err := json.NewDecoder(out).Decode(&call); err != nil {
		t.Fatal(err)
	}
	return call
}

func TestACallHoldsItsRequestAndItsAnswer(t *testing.T) {
	out := &bytes.Buffer{}
	call := exchange(t, NewJournal(out), out, "PATCH", "/api/v1/namespaces/ns/events/pod-0.1f", `{"count":7}`,
		200, `{"kind":"Event","metadata":{"name":"pod-0.1f","resourceVersion":"12"},"count":3}`)
	if call.Verb != "patch" || call.API != "core/v1" || call.Namespace != "ns" || call.Name != "pod-0.1f" {
		t.Errorf("%+v", call)
	}
	if *call.SentCount != 7 || *call.ReturnedCount != 3 || call.ResourceVersion != "12" || call.Status != 200 {
		t.Errorf("%+v", call)
	}
}

func TestARefusalHoldsItsReason(t *testing.T) {
	out := &bytes.Buffer{}
	call := exchange(t, NewJournal(out), out, "POST", "/apis/events.k8s.io/v1/namespaces/ns/events",
		`{"metadata":{"name":"pod-0.1f"},"series":{"count":2}}`, 403, `{"kind":"Status","reason":"Forbidden","message":"no"}`)
	if call.API != "events.k8s.io/v1" || call.Name != "pod-0.1f" || *call.SentSeriesCount != 2 {
		t.Errorf("%+v", call)
	}
	if call.Status != 403 || call.Reason != "Forbidden" || call.Error != "no" {
		t.Errorf("%+v", call)
	}
}

func TestSentIsTheHighestAdmittedCountOfEachName(t *testing.T) {
	out := &bytes.Buffer{}
	journal := NewJournal(out)
	const collection, named = "/api/v1/namespaces/ns/events", "/api/v1/namespaces/ns/events/p-0.1a"
	refused := `{"kind":"Status"}`
	exchange(t, journal, out, "POST", collection, `{"metadata":{"name":"p-0.1a"},"count":1}`, 201, `{}`)
	exchange(t, journal, out, "PATCH", named, `{"count":5}`, 409, refused)
	exchange(t, journal, out, "PATCH", named, `{"count":4}`, 200, `{}`)
	exchange(t, journal, out, "PATCH", named, `{"count":9}`, 404, refused)
	exchange(t, journal, out, "PATCH", named, `{"count":9}`, 429, refused)
	generated := `{"metadata":{"generateName":"p-0-"},"regarding":{"name":"p-0"}}`
	exchange(t, journal, out, "POST", collection, generated, 409, refused)
	exchange(t, journal, out, "POST", collection, generated, 201, `{"metadata":{"name":"p-0-abcde"}}`)
	if err := journal.Summarize(Summary{Objects: []ObjectTotal{{Name: "p-0", Occurrences: 9}}}); err != nil {
		t.Fatal(err)
	}
	var summary Summary
	if err := json.NewDecoder(out).Decode(&summary); err != nil {
		t.Fatal(err)
	}
	if summary.Sent != 7 || summary.Objects[0].Sent != 7 || summary.Occurrences != 9 {
		t.Errorf("%+v", summary)
	}
	if summary.Calls["patch"]["409"] != 1 || summary.Calls["create"]["201"] != 2 {
		t.Errorf("%+v", summary.Calls)
	}
}
