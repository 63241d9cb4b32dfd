package main

import (
	"fmt"
	"math/rand"
	"time"
)

// classicAt: first event at 0, then one per second, 10 ms after the second, so that no
// arrival meets the refill at exactly 300 s.
func classicAt(i int) int64 {
	if i == 0 {
		return 0
	}
	return int64(i)*sec + 10
}

func classic(name, note string, n int, msg func(i int) string) stream {
	s := stream{name: name, note: note + " Default options. Event i>0 arrives at i + 0.010 s.", o: defaults, exactSize: n}
	for i := 0; i < n; i++ {
		e := base()
		e.at, e.msg = classicAt(i), msg(i)
		s.evs = append(s.evs, e)
	}
	return s
}

const msD = time.Millisecond

func sharedList() []stream {
	same := func(int) string { return "Readiness probe failed: connection refused" }
	return []stream{
		classic("classic-identical", "One identical event per second for 400 s.", 400, same),
		classic("classic-distinct", "One event with a new message per second for 400 s.", 400,
			func(i int) string { return fmt.Sprintf("Readiness probe failed: try %03d", i) }),
		classic("classic-26", "26 identical events, then nothing.", 26, same),

		aggThreshold("aggregation-threshold-max10-int600-s11", 11, 10, 600, 8, 400),
		aggThreshold("aggregation-threshold-max10-int600-s12", 12, 10, 600, 3, 300),
		aggThreshold("aggregation-threshold-max3-int60-s13", 13, 3, 60, 10, 450),
		aggThreshold("aggregation-threshold-max50-int600-s14", 14, 50, 600, 3, 600),
		aggThreshold("aggregation-threshold-max2-int1-s15", 15, 2, 1, 6, 360),
		aggThreshold("aggregation-threshold-max1-int60-s16", 16, 1, 60, 4, 200),
		aggGaps("aggregation-gaps-max10-int600-s17", 17, 10, 600, 14, 420),
		aggGaps("aggregation-gaps-max3-int1-s18", 18, 3, 1, 14, 350),
		aggKeyFields("aggregation-keyfields-max10-int600-s19", 19, 10, 600),

		spamBucket("spam-bucket-b25-r300s-s21", 21, 25, 300*time.Second, 5, 480),
		spamBucket("spam-bucket-b5-r10s-s22", 22, 5, 10*time.Second, 8, 400),
		spamBoundary("spam-boundary-b5-r1s-s23", 23, 5, time.Second, 4, 360),
		spamBoundary("spam-boundary-b1-r100ms-s24", 24, 1, 100*msD, 4, 300),
		spamIdle("spam-idle-b25-r300s-s25", 25, 25, 300*time.Second, 450),
		spamKeyFields("spam-keyfields-b25-r300s-s26", 26, 25, 300*time.Second, 2),
		spamBucket("spam-bucket-b60-r1s-s27", 27, 60, time.Second, 3, 450),

		dedupMix("dedup-mix-s31", 31, 80, 400),
		dedupKeyFields("dedup-keyfields-s32", 32, 350),
		dedupLongIdle("dedup-longidle-s33", 33, 8, 300),

		defaultStream("default-crashloop-s41", "20 pods in CrashLoopBackOff for 13 minutes.", 41,
			func(s *stream, r *rand.Rand) { crashLoop(s, r, 20, 13*minute) }),
		defaultStream("default-cronjob-s42", "Two CronJobs, one job per minute each, for 80 minutes.", 42,
			func(s *stream, r *rand.Rand) { cronJob(s, r, 2, minute, 80*minute) }),
		defaultStream("default-scheduling-s43", "FailedScheduling storm of 12 pods for 40 minutes.", 43,
			func(s *stream, r *rand.Rand) { scheduling(s, r, 12, 0, 40*minute) }),
		defaultStream("default-probes-s44", "9 pods with failing readiness probes, every 10 s, for 20 minutes.", 44,
			func(s *stream, r *rand.Rand) { probes(s, r, 9, 0, 20*minute) }),
		defaultStream("default-mixed-s45", "Crash loops, a CronJob, unschedulable pods and failing probes together.", 45,
			func(s *stream, r *rand.Rand) {
				crashLoop(s, r, 4, 15*minute)
				cronJob(s, r, 1, minute, 40*minute)
				scheduling(s, r, 5, 5*minute, 25*minute)
				probes(s, r, 3, 2*minute, 20*minute)
			}),
	}
}

func hiddenList() []stream {
	return []stream{
		aggThreshold("aggregation-threshold-max10-int600-s911", 911, 10, 600, 6, 500),
		aggThreshold("aggregation-threshold-max2-int60-s912", 912, 2, 60, 8, 400),
		aggThreshold("aggregation-threshold-max50-int60-s913", 913, 50, 60, 3, 700),
		aggThreshold("aggregation-threshold-max7-int300-s914", 914, 7, 300, 9, 500),
		aggThreshold("aggregation-threshold-max3-int1-s915", 915, 3, 1, 5, 350),
		aggGaps("aggregation-gaps-max10-int600-s916", 916, 10, 600, 21, 630),
		aggGaps("aggregation-gaps-max2-int60-s917", 917, 2, 60, 14, 420),
		aggKeyFields("aggregation-keyfields-max3-int60-s918", 918, 3, 60),

		spamBucket("spam-bucket-b25-r300s-s921", 921, 25, 300*time.Second, 4, 600),
		spamBucket("spam-bucket-b1-r10s-s922", 922, 1, 10*time.Second, 6, 420),
		spamBucket("spam-bucket-b10-r60s-s923", 923, 10, 60*time.Second, 5, 500),
		spamBoundary("spam-boundary-b60-r100ms-s924", 924, 60, 100*msD, 2, 800),
		spamBoundary("spam-boundary-b5-r500ms-s925", 925, 5, 500*msD, 4, 440),
		spamIdle("spam-idle-b5-r10s-s926", 926, 5, 10*time.Second, 500),
		spamKeyFields("spam-keyfields-b5-r1s-s927", 927, 5, time.Second, 6),

		dedupMix("dedup-mix-s931", 931, 150, 700),
		dedupKeyFields("dedup-keyfields-s932", 932, 600),

		defaultStream("default-crashloop-s941", "20 pods in CrashLoopBackOff for 14 minutes.", 941,
			func(s *stream, r *rand.Rand) { crashLoop(s, r, 20, 14*minute) }),
		defaultStream("default-cronjob-s942", "A CronJob with one job per minute, for 3 hours.", 942,
			func(s *stream, r *rand.Rand) { cronJob(s, r, 1, minute, 3*hour) }),
		defaultStream("default-cronjob-s943", "Three CronJobs with one job per 10 minutes, for 10 hours: the group lives for as long as no gap is over 600 s.", 943,
			func(s *stream, r *rand.Rand) { cronJob(s, r, 3, 10*minute, 10*hour) }),
		defaultStream("default-scheduling-s944", "FailedScheduling storm of 12 pods for 70 minutes.", 944,
			func(s *stream, r *rand.Rand) { scheduling(s, r, 12, 0, 70*minute) }),
		defaultStream("default-probes-s945", "7 pods with failing readiness probes, every 10 s, for 30 minutes.", 945,
			func(s *stream, r *rand.Rand) { probes(s, r, 7, 0, 30*minute) }),
		defaultStream("default-mixed-s946", "Crash loops, CronJobs, unschedulable pods and failing probes together.", 946,
			func(s *stream, r *rand.Rand) {
				crashLoop(s, r, 5, 16*minute)
				cronJob(s, r, 2, 2*minute, 60*minute)
				scheduling(s, r, 6, 10*minute, 30*minute)
				probes(s, r, 3, 5*minute, 18*minute)
			}),
	}
}
