package main

import (
	"fmt"
	"math/rand"
	"slices"
)

func aggThreshold(name string, seed int64, max, interval, groups, events int) stream {
	r := rand.New(rand.NewSource(seed))
	s := stream{name: name, o: aggOpts(max, interval), note: fmt.Sprintf(
		"%d groups around the threshold of %d distinct messages in %d s; bucket never empty.", groups, max, interval)}
	iv := int64(interval) * sec
	per := events / groups
	m := newModel(s.o)
	for g := 0; g < groups; g++ {
		b := obj(g)
		b.rsn = []string{"Unhealthy", "BackOff", "Failed"}[g%3]
		t := r.Int63n(iv/4 + 1)
		fresh, n := 0, 0
		var old []string
		emit := func(msg string) bool {
			e := b
			e.at, e.msg = t, msg
			if r.Intn(4) == 0 {
				e.fp = fmt.Sprintf("spec.containers{c%d}", r.Intn(3))
			}
			if m.repeatHazard(e) {
				return false
			}
			m.step(e)
			s.evs = append(s.evs, e)
			n++
			return true
		}
		newMsg := func() string {
			fresh++
			msg := fmt.Sprintf("probe failed: code %03d", fresh)
			old = append(old, msg)
			return msg
		}
		for n < per {
			k := []int{max - 2, max - 1, max - 1, max, max, max + 1, max + 5, max + 5, 1 + r.Intn(max+6)}[r.Intn(9)]
			if max >= 50 {
				k = int(pick(r, int64(max)-1, int64(max), int64(max)+8, int64(max)+8))
			}
			if k < 1 {
				k = 1
			}
			cycleSeen := []string{}
			for i := 0; i < k && n < per; i++ {
				msg := ""
				if len(old) > 0 && r.Intn(3) == 0 {
					msg = old[r.Intn(len(old))] // mostly seen in an earlier life of the group only
				}
				if msg == "" || slices.Contains(cycleSeen, msg) || !emit(msg) {
					msg = newMsg()
					emit(msg)
				}
				cycleSeen = append(cycleSeen, msg)
				for r.Intn(4) == 0 && n < per { // repeats inside one life do not count as distinct
					t += r.Int63n(iv/40 + 1)
					emit(cycleSeen[r.Intn(len(cycleSeen))])
				}
				if r.Intn(20) == 0 {
					t += pick(r, iv-1, iv) // still the same life
				} else {
					t += r.Int63n(iv/30 + 1)
				}
			}
			t += pick(r, iv-1, iv, iv+1, iv+1, iv+sec, iv+sec, 2*iv+r.Int63n(iv))
		}
	}
	return s
}

func aggGaps(name string, seed int64, max, interval, groups, events int) stream {
	r := rand.New(rand.NewSource(seed))
	s := stream{name: name, o: aggOpts(max, interval), note: fmt.Sprintf(
		"Gaps of interval-1ms, interval, interval+1ms, interval+1s between events of a group (interval %d s, max %d): up to and including the interval the group lives on, whatever its total age.", interval, max)}
	iv := int64(interval) * sec
	per := events / groups
	for g := 0; g < groups; g++ {
		b := obj(g)
		t := int64(g)*7*ms + r.Int63n(iv)
		// mode 0: always exactly the interval; 1: always 1 ms less; 2: always 1 ms more;
		// 3: always 1 s more; 4..: runs of small steps with a gap of one of the four kinds.
		mode := g % 7
		run := 1 + r.Intn(max+2)
		for n := 0; n < per; n++ {
			e := b
			e.at, e.msg = t, fmt.Sprintf("attempt %04d", n)
			s.evs = append(s.evs, e)
			switch mode {
			case 0:
				t += iv
			case 1:
				t += iv - 1
			case 2:
				t += iv + 1
			case 3:
				t += iv + sec
			default:
				run--
				if run > 0 {
					t += r.Int63n(iv / 20)
				} else {
					t += pick(r, iv-1, iv, iv+1, iv+sec)
					run = 1 + r.Intn(max+2)
				}
			}
		}
	}
	return s
}

type variant struct {
	field string
	e     ev
}

// groupVariants differ from the base event in exactly one field of the aggregation key.
func groupVariants() []variant {
	b := base()
	return []variant{
		{"base", b},
		{"component", b.with(func(e *ev) { e.comp = "kubeadm" })},
		{"host", b.with(func(e *ev) { e.host = "node-02" })},
		{"kind", b.with(func(e *ev) { e.kind = "Job" })},
		{"namespace", b.with(func(e *ev) { e.ns = "bank" })},
		{"name", b.with(func(e *ev) { e.name = "cart-02" })},
		{"uid", b.with(func(e *ev) { e.uid = "u-0002" })},
		{"apiVersion", b.with(func(e *ev) { e.apiv = "v2" })},
		{"type", b.with(func(e *ev) { e.typ = "Normal" })},
		{"reason", b.with(func(e *ev) { e.rsn = "Unwell" })},
	}
}

func aggKeyFields(name string, seed int64, max, interval int) stream {
	r := rand.New(rand.NewSource(seed))
	s := stream{name: name, o: aggOpts(max, interval), note: fmt.Sprintf(
		"Groups that differ in one key field only (component, host, kind, namespace, name, uid, apiVersion, type, reason), the same messages in each; fieldPath is not part of the group. Phase 1: %d distinct each, none aggregated; 2: fieldPath varies, one message more; 3: one message only with many fieldPaths; 4: all groups over the threshold.", max-1)}
	iv := int64(interval) * sec
	vs := groupVariants()
	t := int64(0)
	// phase spreads list over at most a third of the interval, in random order
	phase := func(list []ev) {
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		step := iv / 3 / int64(len(list))
		if step < 1 {
			step = 1
		}
		for _, e := range list {
			t += r.Int63n(step + 1)
			e.at = t
			s.evs = append(s.evs, e)
		}
		t += iv + pick(r, 1, sec)
	}
	var p1, p2, p3, p4 []ev
	for _, v := range vs {
		for i := 0; i < max-1; i++ {
			p1 = append(p1, v.e.with(func(e *ev) { e.msg = fmt.Sprintf("text %03d", i) }))
			if i%3 == 0 {
				p1 = append(p1, v.e.with(func(e *ev) { e.msg = fmt.Sprintf("text %03d", i) }))
			}
		}
		for i := 0; i < max+1; i++ {
			p2 = append(p2, v.e.with(func(e *ev) {
				e.msg = fmt.Sprintf("text %03d", i)
				e.fp = fmt.Sprintf("spec.containers{c%02d}", i)
			}))
		}
		for i := 0; i < max+2; i++ {
			p3 = append(p3, v.e.with(func(e *ev) {
				e.msg = "text 001"
				e.fp = fmt.Sprintf("spec.containers{c%02d}", i)
			}))
		}
		for i := 0; i < max+5; i++ {
			p4 = append(p4, v.e.with(func(e *ev) { e.msg = fmt.Sprintf("late %03d", i) }))
		}
	}
	phase(p1)
	phase(p2)
	phase(p3)
	phase(p4)
	return s
}
