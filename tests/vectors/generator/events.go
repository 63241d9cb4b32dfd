package main

import (
	"fmt"
	"math/rand"
	"time"
)

const (
	noSpamBurst  = 1000000
	noSpamRefill = 1000 // ns: qps 1e6
	noAggMax     = 1000000
)

func aggOpts(max, interval int) opts { return opts{max, interval, noSpamBurst, noSpamRefill} }
func spamOpts(burst int, refill time.Duration) opts {
	return opts{noAggMax, 600, burst, int64(refill)}
}

var defaults = opts{10, 600, 25, 300e9}

func base() ev {
	return ev{comp: "kubelet", host: "node-01", kind: "Pod", ns: "shop", name: "cart-01", uid: "u-0001",
		apiv: "v1", fp: "", typ: "Warning", rsn: "Unhealthy", msg: "m"}
}

func obj(i int) ev {
	e := base()
	e.name = fmt.Sprintf("cart-%02d", i)
	e.uid = fmt.Sprintf("u-%04d", i)
	e.host = fmt.Sprintf("node-%02d", i%5)
	return e
}

func (e ev) with(f func(*ev)) ev { f(&e); return e }

func pick(r *rand.Rand, v ...int64) int64 { return v[r.Intn(len(v))] }
