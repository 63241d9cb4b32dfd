package main

import "log"

type group struct {
	set     map[string]bool // messages since the last reset
	last    int64
	reached bool
}

// bucket: level in ns, one token = refillNS; sinceFull counts the tokens taken since the
// bucket was certainly full, -1 if it was only just full.
type bucket struct {
	level, last int64
	sinceFull   int
}

type model struct {
	o       opts
	exact   bool
	groups  map[string]*group
	counts  map[string]int
	buckets map[string]*bucket
	cat     [3]map[string]string // concatenated key -> structured key
}

func newModel(o opts) *model {
	m := &model{o: o, exact: o.exact(), groups: map[string]*group{}, counts: map[string]int{}, buckets: map[string]*bucket{}}
	for i := range m.cat {
		m.cat[i] = map[string]string{}
	}
	return m
}

// peekGroup returns the group's state as event e would find it (nil: fresh).
func (m *model) peekGroup(e ev) *group {
	g := m.groups[sepKey(e.aggParts()...)]
	if g == nil || e.at-g.last > int64(m.o.interval)*sec {
		return nil
	}
	return g
}

// repeatHazard: the group reached its maximum and e repeats a message that PopAny may or
// may not have removed.
func (m *model) repeatHazard(e ev) bool {
	g := m.peekGroup(e)
	return g != nil && g.reached && m.o.max > 1 && g.set[e.msg]
}

// margin is 1 ms plus the drift of a float32 qps over the whole stream.
func margin(e ev) int64 { return 1e6 + e.at/10 }

func (m *model) level(e ev) (level int64, sinceFull int) {
	full := int64(m.o.burst) * m.o.refillNS
	b := m.buckets[sepKey(e.spamParts()...)]
	if b == nil {
		return full, 0
	}
	l := b.level + (e.at-b.last)*1e6
	switch {
	case l >= full+margin(e):
		return full, 0
	case l > full-margin(e):
		return min(l, full), -1
	}
	return l, b.sinceFull
}

// boundaryHazard: the arrival is within 1 ms (plus float32 drift) of the moment at which
// the answer of the token bucket changes, and qps is not exactly representable. The last
// token of a bucket that was full is no hazard: its level is an integer plus the refill.
func (m *model) boundaryHazard(e ev) bool {
	if m.exact {
		return false
	}
	l, n := m.level(e)
	d := l - m.o.refillNS
	if d >= 0 && n == m.o.burst-1 {
		return false
	}
	return max(d, -d) < margin(e)
}

func (m *model) noteKey(i int, tag string, parts []string) {
	c, s := catKey(parts...), tag+sepKey(parts...)
	if old, ok := m.cat[i][c]; ok && old != s {
		log.Fatalf("joined keys collide: %q: %q and %q", c, old, s)
	}
	m.cat[i][c] = s
	if len(m.cat[i]) >= lruLimit {
		log.Fatalf("stream would evict from the LRU")
	}
}

// step advances the model: aggregated, count after dedup, skipped.
func (m *model) step(e ev) (aggregated bool, count int, skip bool) {
	ak := sepKey(e.aggParts()...)
	m.noteKey(0, "A", e.aggParts())
	g := m.peekGroup(e)
	if g == nil {
		g = &group{set: map[string]bool{}}
		m.groups[ak] = g
	}
	g.set[e.msg] = true
	g.last = e.at
	if len(g.set) >= m.o.max {
		g.reached = true
	}
	aggregated = g.reached
	var lk string
	if aggregated {
		lk = "A" + ak
		m.noteKey(1, "A", e.aggParts())
	} else {
		lk = "E" + sepKey(e.evParts()...)
		m.noteKey(1, "E", e.evParts())
	}
	m.counts[lk]++
	count = m.counts[lk]
	m.noteKey(2, "S", e.spamParts())
	l, n := m.level(e)
	if l < m.o.refillNS {
		return aggregated, count, true
	}
	if n >= 0 {
		n++
	}
	m.buckets[sepKey(e.spamParts()...)] = &bucket{l - m.o.refillNS, e.at, n}
	return aggregated, count, false
}
