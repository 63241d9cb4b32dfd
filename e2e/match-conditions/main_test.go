package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// full is an Event as a client of core/v1 writes it; sparse has only what an Event needs.
const (
	full = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"web.1","labels":{"app":"web"}},` +
		`"involvedObject":{"kind":"Pod","namespace":"shop","name":"web","apiVersion":"v1"},"reason":"BackOff",` +
		`"message":"restarting","source":{"component":"kubelet","host":"node-1"},"type":"Warning","count":3,` +
		`"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:05:05Z"}`
	sparse = `{"metadata":{"name":"web.2"},"involvedObject":{}}`
)

// conditionsLine returns the line of these expressions, named c0, c1 and so on.
func conditionsLine(expressions ...string) string {
	list := []map[string]string{}
	for i, expression := range expressions {
		list = append(list, map[string]string{"name": fmt.Sprintf("c%d", i), "expression": expression})
	}
	text, err := json.Marshal(map[string]any{"conditions": list})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// writeLine returns the line of a CREATE; more are further members, after a comma.
func writeLine(event, more string) string {
	return `{"event":` + event + `,"user":"system:serviceaccount:a:b","namespace":"shop","operation":"CREATE"` + more + `}`
}

// ask returns the answers to lines.
func ask(t *testing.T, s server, lines ...string) ([]answer, error) {
	t.Helper()
	var out strings.Builder
	failure := s.serve(context.Background(), strings.NewReader(strings.Join(lines, "\n")), &out)
	var answers []answer
	for _, text := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var a answer
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		answers = append(answers, a)
	}
	return answers, failure
}

func TestEvaluations(t *testing.T) {
	message := func(length int) string {
		return `{"metadata":{"name":"long"},"involvedObject":{},"message":"` + strings.Repeat("x", length) + `"}`
	}
	// Costs 100 for each 10 characters of the message.
	regex := `object.message.matches("` + strings.Repeat("x?", 200) + `")`
	tests := []struct {
		name        string
		expressions []string
		event, more string
		called      bool
		failed      string
	}{
		{"no conditions", nil, sparse, "", true, ""},
		{"true", []string{`object.reason == "BackOff"`}, full, "", true, ""},
		{"one is false", []string{`object.reason == "BackOff"`, `object.type == "Normal"`}, full, "", false, ""},

		{"a guard of a missing field", []string{`!has(object.series) || object.series.count > 1`}, full, "", true, ""},
		{"a guard that is false", []string{`has(object.series) && object.series.count > 1`}, full, "", false, ""},
		{"a missing field", []string{`object.series.count > 1`}, full, "", false, "no such key: series"},
		{"a missing field beside false", []string{`object.series.count > 1`, `false`}, full, "", false, ""},
		{"a missing field, absorbed", []string{`object.series.count > 1 || true`}, full, "", true, ""},

		{"empty strings are missing", []string{`!has(object.type) && !has(object.reason) && !has(object.action)`},
			`{"metadata":{},"involvedObject":{},"type":"","reason":"","action":""}`, "", true, ""},
		{"an empty string in a comparison", []string{`object.type == ""`}, sparse, "", false, "no such key: type"},
		{"zero is missing", []string{`!has(object.count)`}, `{"metadata":{},"involvedObject":{},"count":0}`, "", true, ""},
		{"the reporter is never missing",
			[]string{`object.reportingComponent == "" && object.reportingInstance == ""`}, sparse, "", true, ""},
		{"objects are never missing", []string{`object.source == {} && object.involvedObject == {}`}, sparse, "", true, ""},
		{"times are null", []string{`object.firstTimestamp == null && object.eventTime == null`}, sparse, "", true, ""},
		{"kind and namespace are set",
			[]string{`object.kind + object.apiVersion + object.metadata.namespace == "Eventv1shop"`}, sparse, "", true, ""},
		{"what the API server sets is missing",
			[]string{`!has(object.metadata.uid) && !has(object.metadata.creationTimestamp)`},
			`{"metadata":{"uid":"u","creationTimestamp":"2026-01-02T03:04:05Z"},"involvedObject":{}}`, "", true, ""},
		{"unknown fields are missing, and the last of two counts", []string{`!has(object.other) && object.reason == "b"`},
			`{"metadata":{},"involvedObject":{},"other":1,"reason":"a","reason":"b"}`, "", true, ""},
		{"a series without a count", []string{`has(object.series) && object.series.count > 1`},
			`{"metadata":{},"involvedObject":{},"series":{"count":0}}`, "", false, "no such key: count"},

		{"a create has no stored object", []string{`oldObject == null`}, full, "", true, ""},
		{"the user", []string{`request.userInfo.username == "system:serviceaccount:a:b" &&
			"system:serviceaccounts:a" in request.userInfo.groups`}, full, "", true, ""},
		{"no dry run", []string{`has(request.dryRun) && !request.dryRun`}, full, "", true, ""},
		{"a dry run", []string{`!request.dryRun`}, full, `,"dryRun":true`, false, ""},
		{"no object of the namespace", []string{`namespaceObject == null`}, full, "", true, ""},
		{"no authorizer", []string{`authorizer.path("/").check("get").allowed()`}, full, "", false, "no such attribute"},

		{"below the limit of one condition", []string{regex}, message(99_000), "", true, ""},
		{"above the limit of one condition", []string{regex}, message(101_000), "", false, "actual cost limit exceeded"},
		{"above the limit of one condition, and false", []string{regex, `false`}, message(101_000), "", false, ""},
		{"above the budget", []string{regex, regex, regex}, message(99_000), "", false, "running out of cost budget"},
		{"above the budget, and false", []string{regex, regex, regex, `false`}, message(99_000), "", false,
			"running out of cost budget"},
	}
	for _, unstructured := range []bool{false, true} {
		for _, test := range tests {
			t.Run(fmt.Sprintf("%s, unstructured %t", test.name, unstructured), func(t *testing.T) {
				answers, err := ask(t, server{unstructured: unstructured},
					conditionsLine(test.expressions...), writeLine(test.event, test.more))
				if err != nil || !answers[0].Compiled || answers[1].Called == nil {
					t.Fatal(answers, err)
				}
				got := answers[1]
				if *got.Called != test.called || (got.Failed == "") != (test.failed == "") ||
					!strings.Contains(got.Failed, test.failed) {
					t.Errorf("called %t, failed %q", *got.Called, got.Failed)
				}
			})
		}
	}
}

func TestUpdatesHaveAStoredObject(t *testing.T) {
	update := strings.Replace(writeLine(full, ""), "CREATE", "UPDATE", 1)
	answers, err := ask(t, server{}, conditionsLine(`request.operation == "UPDATE" && oldObject == object`), update)
	if err != nil || answers[1].Called == nil || !*answers[1].Called {
		t.Error(answers, err)
	}
}

func TestCosts(t *testing.T) {
	tests := []struct {
		expression string
		cost       int64
	}{
		{`true`, 0},
		{`object.reason == "BackOff"`, 3},
		// As much as for a field that exists.
		{`object.action == "BackOff"`, 3},
		{`has(object.reason)`, 1},
		// Independent of the length of the field.
		{`object.message.startsWith("` + strings.Repeat("x", 100) + `")`, 12},
		// Independent of the number of constants.
		{`object.reason in ["a", "b", "c"]`, 2},
	}
	for _, test := range tests {
		answers, err := ask(t, server{cost: true}, conditionsLine(test.expression), writeLine(full, ""))
		if err != nil || answers[1].Cost == nil || *answers[1].Cost != test.cost {
			t.Errorf("%s: %v, %v", test.expression, answers, err)
		}
	}
	answers, _ := ask(t, server{cost: true}, conditionsLine(), writeLine(full, ""))
	if answers[1].Cost == nil || *answers[1].Cost != 0 {
		t.Error("no conditions cost something")
	}
}

func TestRefusedConditions(t *testing.T) {
	tests := []struct{ name, line, refusal string }{
		{"syntax", conditionsLine(`object.`), "Syntax error"},
		{"type", conditionsLine(`"text"`), "must evaluate to bool"},
		{"variable", conditionsLine(`params == null`), "undeclared reference to 'params'"},
		{"empty", conditionsLine(` `), "Required value"},
		{"no name", `{"conditions":[{"name":"","expression":"true"}]}`, "Required value"},
		{"equal names", `{"conditions":[{"name":"a","expression":"true"},{"name":"a","expression":"true"}]}`,
			"Duplicate value"},
		{"number", conditionsLine(strings.Split(strings.Repeat("true ", 65), " ")[:65]...), "must have at most 64 items"},
		{"length", conditionsLine(`"` + strings.Repeat("x", 100_000) + `" == ""`), "size exceeds limit"},
		{"newer than 1.30", conditionsLine(`isIP(object.message)`), "Kubernetes 1.30 refuses the condition c0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			answers, err := ask(t, server{}, conditionsLine("true"), test.line, writeLine(full, ""))
			if err != nil || answers[1].Compiled || !strings.Contains(answers[1].Error, test.refusal) {
				t.Error(answers, err)
			}
			if answers[2].Called != nil || answers[2].Error != "no accepted conditions" {
				t.Error("the conditions before are still evaluated")
			}
		})
	}
}

func TestMalformedLines(t *testing.T) {
	for _, malformed := range []string{
		``, `{}`, `no JSON`, `{"conditions":[],"event":` + full + `}`, `{"other":1}`, conditionsLine() + `{}`,
		writeLine(full, `,"dryrun":true`),
		writeLine(`{"apiVersion":"v1","kind":"Pod"}`, ""),
		writeLine(`{"metadata":{"namespace":"other"},"involvedObject":{}}`, ""),
		writeLine(`{"count":"many"}`, ""),
		strings.Replace(writeLine(full, ""), "CREATE", "DELETE", 1),
		strings.Replace(writeLine(full, ""), `"namespace":"shop",`, "", 2),
	} {
		answers, err := ask(t, server{}, conditionsLine(), malformed, conditionsLine())
		if err == nil || len(answers) != 2 || answers[1].Error == "" {
			t.Errorf("%s: %v, %v", malformed, answers, err)
		}
	}
}

// An answer does not wait for the rest of a line that has begun.
func TestAnswersAreFlushed(t *testing.T) {
	toServer, in := io.Pipe()
	out, fromServer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- (&server{}).serve(context.Background(), toServer, fromServer) }()
	go func() { _, _ = io.WriteString(in, conditionsLine("true")+"\n"+`{"eve`) }()

	answered := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(out).ReadString('\n')
		answered <- text
	}()
	select {
	case text := <-answered:
		if text != `{"compiled":true}`+"\n" {
			t.Error(text)
		}
	case <-time.After(time.Minute):
		t.Error("no answer")
	}
	_ = out.Close()
	_ = in.Close()
	if err := <-ended; err == nil {
		t.Error("half a line is not malformed")
	}
}

func BenchmarkEvaluation(b *testing.B) {
	s := server{}
	conditions := conditionsLine(`!(has(object.reason) && object.reason == "Pulled")`)
	if _, err := s.answer(context.Background(), []byte(conditions)); err != nil {
		b.Fatal(err)
	}
	text := []byte(writeLine(full, ""))
	for b.Loop() {
		if _, err := s.answer(context.Background(), text); err != nil {
			b.Fatal(err)
		}
	}
}
