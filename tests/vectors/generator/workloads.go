package main

import (
	"fmt"
	"math/rand"
)

func hexid(r *rand.Rand, n int) string {
	const c = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = c[r.Intn(len(c))]
	}
	return string(b)
}

// uuid is shortened to keep the files small.
func uuid(r *rand.Rand) string {
	return fmt.Sprintf("%08x-%04x", r.Uint32(), r.Intn(1<<16))
}

func pod(r *rand.Rand, ns, app string) ev {
	return ev{comp: "kubelet", host: fmt.Sprintf("node-%d", r.Intn(5)), kind: "Pod", ns: ns,
		name: app + "-" + hexid(r, 9) + "-" + hexid(r, 5), uid: uuid(r), apiv: "v1", fp: "spec.containers{app}"}
}

func (s *stream) add(e ev, at int64, typ, rsn, msg string) {
	e.at, e.typ, e.rsn, e.msg = at, typ, rsn, msg
	s.evs = append(s.evs, e)
}

func crashLoop(s *stream, r *rand.Rand, pods int, span int64) {
	for i := 0; i < pods; i++ {
		p := pod(r, "shop", []string{"cart", "pay", "web"}[i%3])
		t := r.Int63n(2 * minute)
		s.add(p.with(func(e *ev) { e.comp, e.host, e.fp = "default-scheduler", "", "" }), t, "Normal", "Scheduled",
			fmt.Sprintf("Successfully assigned %s/%s to %s", p.ns, p.name, p.host))
		back := pick(r, 10, 20, 80, 160, 300) * sec
		for t < span {
			t += 700 + r.Int63n(900)
			if r.Intn(2) == 0 {
				s.add(p, t, "Normal", "Pulled", `Container image "registry.local/app:1.4" already present on machine`)
			} else {
				d := 200 + r.Int63n(800)
				t += d
				s.add(p, t, "Normal", "Pulled", fmt.Sprintf(`Successfully pulled image "registry.local/app:1.4" in %dms (%dms including waiting). Image size: 10240 bytes.`, d, d))
			}
			t += 40 + r.Int63n(60)
			s.add(p, t, "Normal", "Created", "Created container: app")
			t += 60 + r.Int63n(60)
			s.add(p, t, "Normal", "Started", "Started container app")
			t += 1*sec + r.Int63n(4*sec) // it crashes
			end := t + back
			for t < end && t < span {
				s.add(p, t, "Warning", "BackOff", fmt.Sprintf("Back-off restarting failed container app in pod %s_%s(%s)", p.name, p.ns, p.uid))
				t += 20*sec + r.Int63n(6*sec)
			}
			if back < 300*sec {
				back *= 2
			}
			if back > 300*sec {
				back = 300 * sec
			}
		}
	}
}

func cronJob(s *stream, r *rand.Rand, jobs int, period, span int64) {
	for i := 0; i < jobs; i++ {
		c := ev{comp: "cronjob-controller", kind: "CronJob", ns: "batch", name: "report-" + hexid(r, 4), uid: uuid(r), apiv: "batch/v1"}
		serial := 29000000 + r.Intn(100000)
		for t := period; t < span; t += period {
			serial += int(period / minute)
			job := fmt.Sprintf("%s-%d", c.name, serial)
			s.add(c, t+20+r.Int63n(80), "Normal", "SuccessfulCreate", "Created job "+job)
			j := ev{comp: "job-controller", kind: "Job", ns: "batch", name: job, uid: uuid(r), apiv: "batch/v1"}
			s.add(j, t+110+r.Int63n(80), "Normal", "SuccessfulCreate", "Created pod: "+job+"-"+hexid(r, 5))
			if r.Intn(20) == 0 {
				s.add(j, t+30*sec+r.Int63n(sec), "Warning", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
				s.add(c, t+31*sec+r.Int63n(sec), "Normal", "SawCompletedJob", "Saw completed job: "+job+", condition: Failed")
				continue
			}
			d := 5*sec + r.Int63n(20*sec)
			s.add(j, t+d, "Normal", "Completed", "Job completed")
			s.add(c, t+d+30+r.Int63n(50), "Normal", "SawCompletedJob", "Saw completed job: "+job+", condition: Complete")
			if t > 3*period {
				s.add(c, t+d+100+r.Int63n(50), "Normal", "SuccessfulDelete", fmt.Sprintf("Deleted job %s-%d", c.name, serial-3*int(period/minute)))
			}
		}
	}
}

func scheduling(s *stream, r *rand.Rand, pods int, start, span int64) {
	for i := 0; i < pods; i++ {
		p := pod(r, "train", "worker")
		p.comp, p.host, p.fp = "default-scheduler", "", ""
		t := start + r.Int63n(20*sec)
		nodes := 400 + r.Intn(200)
		for t < start+span {
			cpu := r.Intn(nodes)
			mem := nodes - cpu
			if i%3 > 0 && r.Intn(3) > 0 { // the cluster changes slowly: mostly few different texts
				cpu = 3 + r.Intn(2)
				mem = nodes - cpu
			}
			s.add(p, t, "Warning", "FailedScheduling", fmt.Sprintf(
				"0/%d nodes are available: %d Insufficient cpu, %d Insufficient memory. preemption: 0/%d nodes are available: %d No preemption victims found for incoming pod.",
				nodes, cpu, mem, nodes, nodes))
			if r.Intn(12) == 0 {
				s.add(p.with(func(e *ev) { e.comp = "cluster-autoscaler" }), t+300, "Normal", "NotTriggerScaleUp",
					fmt.Sprintf("pod didn't trigger scale-up: %d max node group size reached", 1+r.Intn(3)))
			}
			t += pick(r, 5*sec, 20*sec, 20*sec, minute, minute, 5*minute) + r.Int63n(3*sec)
			if r.Intn(25) == 0 {
				t += 600*sec + 1 + r.Int63n(10*minute)
			}
		}
		if r.Intn(3) == 0 {
			s.add(p, t, "Normal", "Scheduled", fmt.Sprintf("Successfully assigned %s/%s to node-%d", p.ns, p.name, r.Intn(5)))
		}
	}
}

func probes(s *stream, r *rand.Rand, pods int, start, span int64) {
	for i := 0; i < pods; i++ {
		p := pod(r, "api", "front")
		ip := fmt.Sprintf("10.244.%d.%d", r.Intn(8), 2+r.Intn(250))
		t := start + r.Int63n(minute)
		style := i % 3
		for t < start+span {
			switch style {
			case 0: // the same text each time
				s.add(p, t, "Warning", "Unhealthy", fmt.Sprintf(`Readiness probe failed: Get "http://%s:8080/ready": dial tcp %s:8080: connect: connection refused`, ip, ip))
			case 1: // the local port is part of the text
				s.add(p, t, "Warning", "Unhealthy", fmt.Sprintf(`Readiness probe failed: Get "http://%s:8080/ready": read tcp 10.244.0.1:%d->%s:8080: read: connection reset by peer`, ip, 32768+r.Intn(28000), ip))
			default: // few texts, then a new one now and then
				if r.Intn(3) > 0 {
					s.add(p, t, "Warning", "Unhealthy", fmt.Sprintf("Readiness probe failed: HTTP probe failed with statuscode: %d", 500+r.Intn(5)))
				} else {
					s.add(p, t, "Warning", "Unhealthy", fmt.Sprintf("Readiness probe failed: slow answer after %d.%03ds", 1+r.Intn(3), r.Intn(1000)))
				}
			}
			if r.Intn(15) == 0 {
				s.add(p, t+200, "Normal", "Killing", "Container app failed liveness probe, will be restarted")
			}
			t += 10*sec + r.Int63n(40)
			if r.Intn(30) == 0 {
				t += pick(r, 600*sec+1, 599*sec, 700*sec, 20*minute)
			}
		}
	}
}

func defaultStream(name, note string, seed int64, fill func(s *stream, r *rand.Rand)) stream {
	s := stream{name: name, note: note + " Default options.", o: defaults, drop: true}
	fill(&s, rand.New(rand.NewSource(seed)))
	return s
}
