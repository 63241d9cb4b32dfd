// Evaluates the matchConditions of a mutating webhook for writes of Events, with the code of the API server. Reads JSON
// lines from standard input, and answers each of them with one line on standard output.
//
// {"conditions":[{"name":"a","expression":"..."}]} replaces the conditions. The answer is {"compiled":true}, or
// {"error":"..."} if the API server refuses them, or if the oldest supported version does.
//
// {"event":{...},"user":"...","namespace":"...","operation":"CREATE","dryRun":false} is a write of a core/v1 Event. The
// operation is CREATE or UPDATE; the stored Event of an UPDATE is that of "stored", or else the written one. The answer
// is {"called":true} or {"called":false}: whether the API server calls a webhook with these conditions and the failure
// policy Ignore. "failed" is the error for which it does not call the webhook although no condition is false. --cost adds "cost", the
// sum of the runtime costs, unless the budget is exceeded. Without accepted conditions, the answer is {"error":"..."}.
//
// A malformed line is answered with {"error":"..."}, and ends the program with status 1.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	sigsjson "sigs.k8s.io/json"
)

// line is a line of standard input: conditions or a write.
type line struct {
	Conditions *[]admissionregistrationv1.MatchCondition `json:"conditions"`
	write
}

// answer is a line of standard output.
type answer struct {
	Compiled bool   `json:"compiled,omitempty"`
	Called   *bool  `json:"called,omitempty"`
	Failed   string `json:"failed,omitempty"`
	Cost     *int64 `json:"cost,omitempty"`
	Error    string `json:"error,omitempty"`
}

func main() {
	cost := flag.Bool("cost", false, "report the runtime cost of each evaluation")
	unstructured := flag.Bool("unstructured", false, "convert Events to unstructured objects, as before Kubernetes 1.37")
	flag.Parse()
	// Each line allocates, and little of it stays.
	debug.SetGCPercent(400)
	s := server{cost: *cost, unstructured: *unstructured}
	if err := s.serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "match-conditions:", err)
		os.Exit(1)
	}
}

// server answers lines. conditions is nil before the first conditions and after refused ones.
type server struct {
	cost, unstructured bool
	conditions         *conditions
}

// serve answers the lines of in until its end, or until a malformed line, which is the error. It buffers answers while
// another complete line has been read.
func (s *server) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	reader, writer := bufio.NewReaderSize(in, 1<<16), bufio.NewWriterSize(out, 1<<16)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for {
		if buffered, err := reader.Peek(reader.Buffered()); err != nil || bytes.IndexByte(buffered, '\n') < 0 {
			if err := writer.Flush(); err != nil {
				return err
			}
		}
		text, err := reader.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return err
		}
		if len(text) == 0 {
			return nil
		}
		reply, malformed := s.answer(ctx, text)
		if malformed != nil {
			reply = answer{Error: malformed.Error()}
		}
		if err := encoder.Encode(reply); err != nil {
			return err
		}
		if malformed != nil {
			return errors.Join(malformed, writer.Flush())
		}
	}
}

// parse decodes a line, and in it an Event as the API server does: it ignores unknown and repeated fields of an object.
func parse(text []byte) (line, error) {
	var l line
	strict, err := sigsjson.UnmarshalStrict(text, &l)
	if err != nil {
		return line{}, err
	}
	for _, err := range strict {
		if !strings.Contains(err.Error(), ` field "event.`) {
			return line{}, err
		}
	}
	return l, nil
}

// answer returns the answer to one line, or an error if the line is malformed.
func (s *server) answer(ctx context.Context, text []byte) (answer, error) {
	l, err := parse(text)
	if err != nil {
		return answer{}, fmt.Errorf("malformed line: %w", err)
	}
	switch {
	case l.Conditions != nil && l.Event != nil:
		return answer{}, errors.New("malformed line: conditions and an event")
	case l.Conditions != nil:
		if s.conditions, err = compile(*l.Conditions); err != nil {
			return answer{Error: err.Error()}, nil
		}
		return answer{Compiled: true}, nil
	case l.Event != nil:
		attributes, err := l.attributes(s.unstructured)
		if err != nil {
			return answer{}, fmt.Errorf("malformed line: %w", err)
		}
		if s.conditions == nil {
			return answer{Error: "no accepted conditions"}, nil
		}
		v := s.conditions.evaluate(ctx, attributes)
		reply := answer{Called: &v.called, Failed: v.failed}
		if s.cost && !v.overBudget {
			reply.Cost = &v.cost
		}
		return reply, nil
	default:
		return answer{}, errors.New("malformed line: neither conditions nor an event")
	}
}
