module squelch/e2e/emitters/emitter

go 1.26.0
