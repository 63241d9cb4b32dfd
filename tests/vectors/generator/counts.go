package main

import (
	"fmt"
	"math/rand"
)

func dedupOpts() opts { return opts{noAggMax, 600, noSpamBurst, noSpamRefill} }

func dedupMix(name string, seed int64, kinds, events int) stream {
	r := rand.New(rand.NewSource(seed))
	s := stream{name: name, o: dedupOpts(), note: fmt.Sprintf(
		"%d different events repeating in a skewed random order; only counts matter.", kinds)}
	z := rand.NewZipf(r, 1.3, 3, uint64(kinds-1))
	var list []ev
	for i := 0; i < kinds; i++ {
		e := obj(i % 12)
		e.typ = []string{"Normal", "Warning"}[i/12%2]
		e.rsn = []string{"Unhealthy", "BackOff", "Pulled"}[i/7%3]
		e.msg = fmt.Sprintf("text %02d", i%9)
		if i%4 == 0 {
			e.fp = "spec.containers{app}"
		}
		list = append(list, e)
	}
	t := int64(0)
	for i := 0; i < events; i++ {
		e := list[int(z.Uint64())]
		e.at = t
		s.evs = append(s.evs, e)
		t += pick(r, 0, 1, r.Int63n(sec), r.Int63n(10*sec))
	}
	return s
}

func dedupVariants() []variant {
	b := base()
	return append(groupVariants(),
		variant{"fieldPath", b.with(func(e *ev) { e.fp = "spec.containers{app}" })},
		variant{"fieldPath", b.with(func(e *ev) { e.fp = "spec.containers{db}" })},
		variant{"message", b.with(func(e *ev) { e.msg = "n" })},
		variant{"message", b.with(func(e *ev) { e.msg = "M" })},
		variant{"message", b.with(func(e *ev) { e.msg = "m " })},
		variant{"message", b.with(func(e *ev) { e.msg = "" })},
		variant{"message", b.with(func(e *ev) { e.msg = "größe ≥ 1 “x”\n\tline <two> & \\ end" })},
		variant{"host", b.with(func(e *ev) { e.host = "" })},
		variant{"uid", b.with(func(e *ev) { e.uid = "" })},
		variant{"namespace", b.with(func(e *ev) { e.ns = "" })},
	)
}

func dedupKeyFields(name string, seed int64, events int) stream {
	r := rand.New(rand.NewSource(seed))
	s := stream{name: name, o: dedupOpts(),
		note: "Events that differ from a base event in exactly one field, interleaved: each has its own count. Some fields are empty, one message has non-ASCII text and control characters."}
	vs := dedupVariants()
	t := int64(0)
	for i := 0; i < events; i++ {
		v := vs[r.Intn(len(vs))]
		e := v.e
		e.at = t
		s.evs = append(s.evs, e)
		t += r.Int63n(2 * sec)
	}
	return s
}

func dedupLongIdle(name string, seed int64, kinds, events int) stream {
	r := rand.New(rand.NewSource(seed))
	s := stream{name: name, o: dedupOpts(),
		note: "Identical events with idle times of minutes to days: counts never expire."}
	t := int64(0)
	for i := 0; i < events; i++ {
		e := obj(r.Intn(kinds))
		e.msg = fmt.Sprintf("text %d", r.Intn(3))
		e.at = t
		s.evs = append(s.evs, e)
		t += pick(r, sec, minute, 599999, 600000, 600001, hour, 24*hour, 5*24*hour)
	}
	return s
}
