package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Recorded is a transport that prints every request with its answer. It is next to the network (rest.Config.Wrap),
// below the client's own retries, so that each attempt is recorded.
type Recorded struct {
	next    http.RoundTripper
	journal *Journal
}

// Record wraps a transport with this journal.
func (j *Journal) Record(next http.RoundTripper) http.RoundTripper {
	return &Recorded{next: next, journal: j}
}

// RoundTrip implements http.RoundTripper; bodies are buffered and passed on unchanged.
func (r *Recorded) RoundTrip(request *http.Request) (*http.Response, error) {
	request, sent, err := readRequest(request)
	if err != nil {
		return nil, err
	}
	call := describe(request, sent)
	sentAt := time.Now()
	response, err := r.next.RoundTrip(request)
	if err != nil {
		call.Error = err.Error()
		r.journal.Call(call, sentAt)
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		call.Error = fmt.Sprintf("reading the answer: %v", err)
		r.journal.Call(call, sentAt)
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	call.answer(response.StatusCode, body)
	r.journal.Call(call, sentAt)
	return response, nil
}

// readRequest returns the body and a copy of the request with it: a RoundTripper must not change its request.
func readRequest(request *http.Request) (*http.Request, []byte, error) {
	if request.Body == nil {
		return request, nil, nil
	}
	body, err := io.ReadAll(request.Body)
	_ = request.Body.Close()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the request: %w", err)
	}
	clone := request.Clone(request.Context())
	clone.Body = io.NopCloser(bytes.NewReader(body))
	clone.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return clone, body, nil
}

// eventBody holds the fields that are read from an Event of either API, a patch and a Status.
type eventBody struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name            string `json:"name"`
		GenerateName    string `json:"generateName"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	InvolvedObject struct {
		Name string `json:"name"`
	} `json:"involvedObject"`
	Regarding struct {
		Name string `json:"name"`
	} `json:"regarding"`
	Count  *int32 `json:"count"`
	Series *struct {
		Count *int32 `json:"count"`
	} `json:"series"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (e eventBody) seriesCount() *int32 {
	if e.Series == nil {
		return nil
	}
	return e.Series.Count
}

var verbs = map[string]string{
	http.MethodPost: "create", http.MethodPatch: "patch", http.MethodPut: "update",
	http.MethodGet: "get", http.MethodDelete: "delete",
}

func describe(request *http.Request, body []byte) Call {
	call := Call{Verb: verbs[request.Method]}
	call.API, call.Namespace, call.Name = parsePath(request.URL.Path)
	var event eventBody
	if len(body) == 0 {
		return call
	}
	if err := json.Unmarshal(body, &event); err != nil {
		call.Error = fmt.Sprintf("the request is not JSON: %v", err)
		return call
	}
	if call.Name == "" {
		call.Name = event.Metadata.Name
	}
	call.generated = call.Name == "" && event.Metadata.GenerateName != ""
	call.object = event.InvolvedObject.Name + event.Regarding.Name
	call.SentCount, call.SentSeriesCount = event.Count, event.seriesCount()
	return call
}

func (c *Call) answer(status int, body []byte) {
	c.Status = status
	var event eventBody
	if err := json.Unmarshal(body, &event); err != nil {
		c.Error = fmt.Sprintf("the answer is not JSON: %v", err)
		return
	}
	if event.Kind == "Status" {
		c.Reason, c.Error = event.Reason, event.Message
		return
	}
	if c.Name == "" {
		c.Name = event.Metadata.Name
	}
	c.ReturnedCount, c.ReturnedSeriesCount = event.Count, event.seriesCount()
	c.ResourceVersion = event.Metadata.ResourceVersion
}

// parsePath splits /api/v1/namespaces/NS/events/NAME and /apis/GROUP/VERSION/namespaces/NS/events/NAME.
func parsePath(path string) (api, namespace, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		api, parts = "core/"+parts[1], parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		api, parts = parts[1]+"/"+parts[2], parts[3:]
	default:
		return path, "", ""
	}
	if len(parts) >= 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	if len(parts) >= 2 {
		name = parts[1]
	}
	return api, namespace, name
}
