package main

import (
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// References returns the objects of the Events. They need not exist: the API server does not check.
func References(o Options) []*corev1.ObjectReference {
	refs := make([]*corev1.ObjectReference, o.Objects)
	for i := range refs {
		name := fmt.Sprintf("%s-%d", o.NamePrefix, i)
		refs[i] = &corev1.ObjectReference{
			APIVersion: o.APIVersion,
			Kind:       o.Kind,
			Namespace:  o.Namespace,
			Name:       name,
			UID:        stableUID(o.Namespace, o.Kind, name),
			FieldPath:  o.FieldPath,
		}
		if o.UID != "" {
			refs[i].UID = types.UID(o.UID)
		}
	}
	return refs
}

// stableUID makes processes with the same names refer to the same objects; emitter-kube computes the same.
func stableUID(parts ...string) types.UID {
	h := fnv.New128a()
	_, _ = h.Write([]byte(strings.Join(parts, "/")))
	sum := h.Sum(nil)
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}

// MessageOf returns the message of an object's n-th occurrence (from 0): the same in every process with these
// options.
func (o Options) MessageOf(n int) string {
	switch o.variety {
	case 1:
		return o.Message
	case 0:
		return fmt.Sprintf("%s (%d)", o.Message, n)
	default:
		return fmt.Sprintf("%s (%d)", o.Message, n%o.variety)
	}
}
