package main

import (
	"fmt"
	"strings"
)

// remember adds a call to the sent counts. A webhook has not seen calls that were answered before admission (no
// answer, 404 of a missing Event, 429 of priority and fairness).
func (j *Journal) remember(c Call) {
	if c.Status == 0 || c.Status == 404 || c.Status == 429 {
		return
	}
	key, object := c.Name, objectOf(c.Name)
	if c.generated {
		// Each CREATE with a generated name is a new Event, refused (and so without a name) or not.
		key, object = fmt.Sprintf("#%d", c.Seq), c.object
	}
	value := max(valueOf(c), j.sent[key].value)
	j.sent[key] = sentValue{object: object, value: value}
}

// valueOf returns the number of occurrences that a write reports.
func valueOf(c Call) int {
	switch {
	case c.SentSeriesCount != nil:
		return int(*c.SentSeriesCount)
	case c.SentCount != nil && *c.SentCount > 0:
		return int(*c.SentCount)
	}
	return 1
}

// objectOf returns the object's name in an Event name: client-go and this program append a dot and hex digits.
func objectOf(event string) string {
	if dot := strings.LastIndexByte(event, '.'); dot >= 0 {
		return event[:dot]
	}
	return event
}
