package main

import (
	"math/big"
	"strings"
	"time"
)

const (
	source    = "client-go v0.35.4 tools/record"
	aggPrefix = "(combined from similar events): "
	ms        = int64(1)
	sec       = int64(1000)
	minute    = 60 * sec
	hour      = 60 * minute
	lruLimit  = 4096
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// opts are the correlator options of one vector. refillNS is 1/qps in nanoseconds.
type opts struct {
	max, interval, burst int
	refillNS             int64
}

func (o opts) qps() float32 { return float32(1e9 / float64(o.refillNS)) }

// exact says whether the float32 qps is exactly 1/refill.
func (o opts) exact() bool {
	r := new(big.Rat).SetFloat64(float64(o.qps()))
	r.Mul(r, big.NewRat(o.refillNS, 1e9))
	return r.Cmp(big.NewRat(1, 1)) == 0
}

// ev is one input event; at is in milliseconds since the start.
type ev struct {
	at                                           int64
	comp, host                                   string
	kind, ns, name, uid, apiv, fp, typ, rsn, msg string
}

type stream struct {
	name, note string
	o          opts
	evs        []ev
	// drop: events that would be nondeterministic may be left out, and events too close to
	// a float-dependent refill boundary may be moved a few ms later.
	drop bool
	// exactSize, if set, is asserted.
	exactSize int
}

func sepKey(p ...string) string { return strings.Join(p, "\x00") }
func catKey(p ...string) string { return strings.Join(p, "") }

func (e ev) aggParts() []string {
	return []string{e.comp, e.host, e.kind, e.ns, e.name, e.uid, e.apiv, e.typ, e.rsn, e.comp, e.host}
}
func (e ev) evParts() []string {
	return []string{e.comp, e.host, e.kind, e.ns, e.name, e.fp, e.uid, e.apiv, e.typ, e.rsn, e.msg}
}
func (e ev) spamParts() []string {
	return []string{e.comp, e.host, e.kind, e.ns, e.name, e.uid, e.apiv, e.typ}
}
