package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"sync"
	"time"
)

// Call is the line of one API call and its answer. Every attempt has its own line, retries of the client included.
type Call struct {
	Line string `json:"line"` // "call"
	Seq  int    `json:"seq"`
	// Seconds from the start of the emitter to the sending of the request.
	At        float64 `json:"at"`
	LatencyMs float64 `json:"latencyMs"`
	Verb      string  `json:"verb"`
	API       string  `json:"api"`
	Namespace string  `json:"namespace"`
	// The name in the request; for a generated name, that in the answer.
	Name string `json:"name"`
	// HTTP status; 0: no answer, see Error.
	Status int `json:"status"`
	// The reason of a refusal, for example AlreadyExists.
	Reason              string `json:"reason"`
	SentCount           *int32 `json:"sentCount"`
	SentSeriesCount     *int32 `json:"sentSeriesCount"`
	ReturnedCount       *int32 `json:"returnedCount"`
	ReturnedSeriesCount *int32 `json:"returnedSeriesCount"`
	ResourceVersion     string `json:"resourceVersion"`
	// The message of a refusal, or of the transport.
	Error string `json:"error"`

	// Whether the API server generates the name; then the object of the Event.
	generated bool
	object    string
}

// Log is a line that the client library logged.
type Log struct {
	Line    string  `json:"line"` // "log"
	At      float64 `json:"at"`
	Level   string  `json:"level"` // "error" or "info"
	Message string  `json:"message"`
	Error   string  `json:"error"`
}

// ObjectTotal is the summary of one object.
type ObjectTotal struct {
	Name        string `json:"name"`
	UID         string `json:"uid"`
	Occurrences int    `json:"occurrences"`
	// The sum of the highest counts sent under each Event name, of the calls that reached admission.
	Sent int `json:"sent"`
}

// Summary is the last line.
type Summary struct {
	Line        string  `json:"line"` // "summary"
	Emitter     string  `json:"emitter"`
	Recorder    string  `json:"recorder"`
	Namespace   string  `json:"namespace"`
	Seconds     float64 `json:"seconds"`
	Occurrences int     `json:"occurrences"`
	Sent        int     `json:"sent"`
	// Verb to status to number of calls.
	Calls      map[string]map[string]int `json:"calls"`
	ErrorLines int                       `json:"errorLines"`
	// False if --settle ended before all answers.
	Settled bool          `json:"settled"`
	Objects []ObjectTotal `json:"objects"`
}

// Journal prints the lines and adds up the totals. Safe for concurrent use.
type Journal struct {
	start time.Time

	mu         sync.Mutex
	out        *json.Encoder
	failed     error
	seq        int
	calls      map[string]map[string]int
	errorLines int
	sent       map[string]sentValue
}

type sentValue struct {
	object string
	value  int
}

// NewJournal starts the clock of the "at" fields.
func NewJournal(out io.Writer) *Journal {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return &Journal{start: time.Now(), out: encoder, calls: map[string]map[string]int{}, sent: map[string]sentValue{}}
}

// Call prints the line of a call that was sent at the given time and is answered now.
func (j *Journal) Call(c Call, sentAt time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.Line, c.Seq = "call", j.seq
	c.At, c.LatencyMs = j.since(sentAt), round(time.Since(sentAt).Seconds()*1000)
	j.seq++
	if j.calls[c.Verb] == nil {
		j.calls[c.Verb] = map[string]int{}
	}
	j.calls[c.Verb][fmt.Sprint(c.Status)]++
	j.remember(c)
	j.print(c)
}

// Logged prints a line that the client library logged.
func (j *Journal) Logged(level, message string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	line := Log{Line: "log", At: j.since(time.Now()), Level: level, Message: message}
	if err != nil {
		line.Error = err.Error()
	}
	if level == "error" {
		j.errorLines++
	}
	j.print(line)
}

// Summarize prints the last line. It returns the error of the first line that could not be printed.
func (j *Journal) Summarize(s Summary) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	s.Line, s.Emitter = "summary", "client-go "+clientGoVersion()
	s.Seconds, s.Calls, s.ErrorLines = j.since(time.Now()), j.calls, j.errorLines
	sent := map[string]int{}
	for _, v := range j.sent {
		sent[v.object] += v.value
		s.Sent += v.value
	}
	for i := range s.Objects {
		s.Objects[i].Sent = sent[s.Objects[i].Name]
		s.Occurrences += s.Objects[i].Occurrences
	}
	j.print(s)
	return j.failed
}

// clientGoVersion is the client-go version of this program, for verification by tests.
func clientGoVersion() string {
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if module.Path == "k8s.io/client-go" {
			return module.Version
		}
	}
	return "unknown"
}

func (j *Journal) print(line any) {
	if err := j.out.Encode(line); err != nil && j.failed == nil {
		j.failed = fmt.Errorf("printing a line: %w", err)
	}
}

func (j *Journal) since(t time.Time) float64 { return round(t.Sub(j.start).Seconds()) }

func round(x float64) float64 { return math.Round(x*1000) / 1000 }
