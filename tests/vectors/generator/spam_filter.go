package main

import (
	"fmt"
	"log"
	"math/rand"
	"time"
)

func spamBucket(name string, seed int64, burst int, refill time.Duration, keys, events int) stream {
	r := rand.New(rand.NewSource(seed))
	s := stream{name: name, o: spamOpts(burst, refill), drop: true, note: fmt.Sprintf(
		"Random floods, drips and idle times on %d buckets, burst %d, one token per %v; nothing aggregates.", keys, burst, refill)}
	rf := int64(refill / time.Millisecond)
	per := events / keys
	for k := 0; k < keys; k++ {
		b := obj(k)
		if k%2 == 1 {
			b.typ, b.rsn = "Normal", "Pulled"
		}
		t := r.Int63n(rf + 1)
		for n := 0; n < per; {
			emit := func() {
				e := b
				e.at, e.msg = t, fmt.Sprintf("text %d", r.Intn(6))
				if r.Intn(5) == 0 {
					e.rsn = "Other"
				}
				if r.Intn(5) == 0 {
					e.fp = "spec.containers{app}"
				}
				s.evs = append(s.evs, e)
				n++
			}
			switch r.Intn(4) {
			case 0: // flood
				c := 1 + r.Intn(burst+3)
				if c > per/4+1 {
					c = per/4 + 1
				}
				step := pick(r, 0, 0, 1, rf/50)
				for i := 0; i < c; i++ {
					emit()
					t += step
				}
				t += 1
			case 1, 2: // drip
				c := 2 + r.Intn(8)
				for i := 0; i < c; i++ {
					t += pick(r, rf, rf-1, rf+1, rf/2, rf/4, rf/10, 2*rf, rf*9/10, rf*11/10)
					emit()
				}
			default: // idle
				t += rf * r.Int63n(int64(burst)*3/2+2)
				t += pick(r, 0, rf/2, rf/3)
				emit()
			}
		}
	}
	return s
}

// spamBoundary is for qps values that float32 holds exactly.
func spamBoundary(name string, seed int64, burst int, refill time.Duration, keys, events int) stream {
	r := rand.New(rand.NewSource(seed))
	s := stream{name: name, o: spamOpts(burst, refill), note: fmt.Sprintf(
		"Arrivals 1 ms before, exactly at and 1 ms after the moment a token is complete, with refused attempts in between (they must not change the bucket); burst %d, one token per %v (exact in float32).", burst, refill)}
	if !s.o.exact() {
		log.Fatalf("%s: not exact", name)
	}
	rf := int64(refill / time.Millisecond)
	per := events / keys
	for k := 0; k < keys; k++ {
		b := obj(k)
		t := r.Int63n(10 * sec)
		n := 0
		emit := func(at int64) {
			e := b
			e.at, e.msg = at, fmt.Sprintf("text %d", n%3)
			s.evs = append(s.evs, e)
			n++
		}
		for n < per {
			// drain, plus one or two refused
			for i := 0; i < burst+1+r.Intn(2); i++ {
				emit(t)
			}
			// tokens complete at t+j*rf; take each one at the first attempt at or after it
			for j := int64(1); j <= int64(2+r.Intn(6)); j++ {
				done := t + j*rf
				switch r.Intn(4) {
				case 0:
					emit(done - 1)
					emit(done)
				case 1:
					emit(done)
					emit(done) // second in the same millisecond: refused
				case 2:
					emit(done - rf/2)
					emit(done - 1)
					emit(done + 1)
				default:
					emit(done + rf/3)
				}
			}
			// idle for c whole tokens, or more than enough for a full bucket; t is the last
			// emitted time rounded up to the next whole second so that phases stay simple
			last := s.evs[len(s.evs)-1].at
			t = (last/sec+1)*sec + rf*int64(burst)*2
			c := r.Intn(burst + 2)
			for i := 0; i < burst; i++ {
				emit(t)
			}
			t += rf * int64(c)
			for i := 0; i < min(c, burst); i++ {
				emit(t)
			}
			emit(t) // refused, exactly c tokens were there
			t += rf * int64(burst) * 2
		}
	}
	return s
}

func spamIdle(name string, seed int64, burst int, refill time.Duration, events int) stream {
	r := rand.New(rand.NewSource(seed))
	s := stream{name: name, o: spamOpts(burst, refill), drop: true, note: fmt.Sprintf(
		"Drain, stay idle for k and a half tokens, then count the tokens that came back, k from 0 to over the burst of %d; one token per %v.", burst, refill)}
	rf := int64(refill / time.Millisecond)
	b := base()
	t := int64(0)
	emit := func(c int) {
		for i := 0; i < c; i++ {
			e := b
			e.at, e.msg = t, fmt.Sprintf("text %d", r.Intn(4))
			s.evs = append(s.evs, e)
			t += pick(r, 0, 0, 1)
		}
	}
	emit(burst + 2)
	for len(s.evs) < events {
		k := r.Intn(burst + 4)
		t += rf*int64(k) + rf/2
		emit(min(k, burst) + 2)
		// now the level is between 0 and 1: wait until full and drain, so that the phase is known
		if r.Intn(3) == 0 || k > burst {
			t += rf*int64(burst) + rf*r.Int63n(1000)
			emit(burst + 1)
		} else {
			t += rf / 4 // three quarters of a token: refused once more
			emit(1)
			t += rf*int64(burst) + rf/4
			emit(burst + 1)
		}
	}
	return s
}

func spamKeyFields(name string, seed int64, burst int, refill time.Duration, rounds int) stream {
	r := rand.New(rand.NewSource(seed))
	s := stream{name: name, o: spamOpts(burst, refill), note: fmt.Sprintf(
		"Buckets that differ in one key field only (component, host, kind, namespace, name, uid, apiVersion, type), each sent burst+2 events per round; reason, message and fieldPath share the bucket of the base object. Burst %d, one token per %v.", burst, refill)}
	rf := int64(refill / time.Millisecond)
	t := int64(0)
	for round := 0; round < rounds; round++ {
		var list []ev
		for _, v := range groupVariants() {
			if v.field == "reason" {
				continue
			}
			for i := 0; i < burst+2; i++ {
				list = append(list, v.e.with(func(e *ev) {
					switch i % 4 {
					case 1:
						e.rsn = "Unwell"
					case 2:
						e.msg = fmt.Sprintf("text %03d", i)
					case 3:
						e.fp = fmt.Sprintf("spec.containers{c%02d}", i)
					}
				}))
			}
		}
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		step := rf / 2 / int64(len(list))
		for _, e := range list {
			e.at = t
			s.evs = append(s.evs, e)
			t += r.Int63n(step + 1)
		}
		t += rf * int64(burst) * 2
	}
	return s
}
