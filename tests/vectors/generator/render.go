package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"sort"
	"strconv"
	"strings"
)

type jOptions struct {
	MaxEvents       int         `json:"maxEvents"`
	IntervalSeconds int         `json:"intervalSeconds"`
	Burst           int         `json:"burst"`
	RefillSeconds   json.Number `json:"refillSeconds"`
}
type jHeader struct {
	Vector  string   `json:"vector"`
	Source  string   `json:"source"`
	Options jOptions `json:"options"`
	Note    string   `json:"note"`
}
type jEmitter struct {
	Component string `json:"component"`
	Host      string `json:"host"`
}
type jRegarding struct {
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	APIVersion string `json:"apiVersion"`
	FieldPath  string `json:"fieldPath"`
}
type jExpect struct {
	Outcome    string `json:"outcome"`
	Count      int32  `json:"count"`
	Call       string `json:"call"`
	Aggregated *bool  `json:"aggregated,omitempty"`
}
type jEvent struct {
	At        json.Number `json:"at"`
	Emitter   jEmitter    `json:"emitter"`
	Regarding jRegarding  `json:"regarding"`
	Type      string      `json:"type"`
	Reason    string      `json:"reason"`
	Message   string      `json:"message"`
	Expect    jExpect     `json:"expect"`
}

func line(w *bytes.Buffer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		log.Fatal(err)
	}
}

func seconds(ns int64) json.Number {
	return json.Number(strconv.FormatFloat(float64(ns)/1e9, 'f', -1, 64))
}

const stdNote = " No server state was fed back (UpdateState not called; the results are the same with it)."

type stats struct{ events, plain, agg, skip, dropped, moved int }

// finalize sorts by time and removes the hazards; write runs the twins and renders.
func finalize(s *stream) (st stats) {
	sort.SliceStable(s.evs, func(i, j int) bool { return s.evs[i].at < s.evs[j].at })
	m := newModel(s.o)
	var out []ev
	var floor int64
	for _, e := range s.evs {
		if e.at < floor {
			e.at = floor
		}
		if m.repeatHazard(e) {
			if !s.drop {
				log.Fatalf("%s: repeat in a full group at %d: %+v", s.name, len(out), e)
			}
			st.dropped++
			continue
		}
		for m.boundaryHazard(e) {
			if !s.drop {
				log.Fatalf("%s: arrival at a refill boundary at %d: %+v", s.name, len(out), e)
			}
			e.at += 3
			st.moved++
		}
		if m.repeatHazard(e) { // moving only makes groups older
			log.Fatalf("%s: move made a repeat", s.name)
		}
		m.step(e)
		floor = e.at
		out = append(out, e)
	}
	s.evs = out
	return st
}

func render(s stream, st *stats) []byte {
	var buf bytes.Buffer
	line(&buf, jHeader{s.name, source,
		jOptions{s.o.max, s.o.interval, s.o.burst, seconds(s.o.refillNS)},
		s.note + stdNote + fmt.Sprintf(" qps was given as float32 %s.", strconv.FormatFloat(float64(s.o.qps()), 'g', -1, 64))})
	a, b := newCorr(s.o), newCorr(s.o)
	wide := s.o
	wide.burst, wide.refillNS = 1<<30, 1000
	c := newCorr(wide)
	m := newModel(s.o)
	rv := 0
	for i, e := range s.evs {
		ra, rb, rc := a.run(e), b.run(e), c.run(e)
		if ra.Skip != rb.Skip || a.agg != b.agg || a.agg != c.agg || rc.Skip {
			log.Fatalf("%s: event %d: the twins differ", s.name, i)
		}
		if !ra.Skip {
			if ra.Event.Count != rb.Event.Count || ra.Event.Message != rb.Event.Message || ra.Event.Count != rc.Event.Count {
				log.Fatalf("%s: event %d: the twins differ: %v %v", s.name, i, ra.Event, rb.Event)
			}
			if strings.HasPrefix(ra.Event.Message, aggPrefix) != a.agg {
				log.Fatalf("%s: event %d: prefix and MessageFunc disagree", s.name, i)
			}
			if (len(ra.Patch) > 0) != (ra.Event.Count > 1) {
				log.Fatalf("%s: event %d: patch bytes and count disagree", s.name, i)
			}
			rv++
			server := ra.Event.DeepCopy()
			server.Name = rb.Event.Name
			server.ResourceVersion = strconv.Itoa(rv)
			b.c.UpdateState(server)
		}
		magg, mcount, mskip := m.step(e)
		if magg != a.agg || mskip != ra.Skip || int32(mcount) != rc.Event.Count {
			log.Fatalf("%s: event %d: model says agg=%v count=%d skip=%v, client-go agg=%v count=%d skip=%v: %+v",
				s.name, i, magg, mcount, mskip, a.agg, rc.Event.Count, ra.Skip, e)
		}
		x := jExpect{}
		switch {
		case ra.Skip:
			agg := a.agg
			x = jExpect{"skipped", 0, "none", &agg}
			st.skip++
		case a.agg:
			x = jExpect{"aggregated", ra.Event.Count, "", nil}
			st.agg++
		default:
			x = jExpect{"plain", ra.Event.Count, "", nil}
			st.plain++
		}
		if !ra.Skip {
			x.Call = "create"
			if ra.Event.Count > 1 {
				x.Call = "patch"
			}
		}
		line(&buf, jEvent{json.Number(fmt.Sprintf("%d.%03d", e.at/1000, e.at%1000)),
			jEmitter{e.comp, e.host}, jRegarding{e.kind, e.ns, e.name, e.uid, e.apiv, e.fp},
			e.typ, e.rsn, e.msg, x})
		st.events++
	}
	return buf.Bytes()
}
