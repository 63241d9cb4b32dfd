package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
)

var (
	eventKind     = corev1.SchemeGroupVersion.WithKind("Event")
	eventResource = corev1.SchemeGroupVersion.WithResource("events")
	objects       = admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
)

// write is a request that writes an Event.
type write struct {
	Event     *corev1.Event       `json:"event"`
	Stored    *corev1.Event       `json:"stored"`
	User      string              `json:"user"`
	Namespace string              `json:"namespace"`
	Operation admission.Operation `json:"operation"`
	DryRun    bool                `json:"dryRun"`
}

// attributes returns the request as the API server presents it to its webhooks, except for managedFields.
func (w *write) attributes(asUnstructured bool) (*admission.VersionedAttributes, error) {
	var dryRun []string
	if w.DryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	var options runtime.Object
	switch w.Operation {
	case admission.Create:
		options = &metav1.CreateOptions{DryRun: dryRun}
		options.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("CreateOptions"))
	case admission.Update:
		options = &metav1.UpdateOptions{DryRun: dryRun}
		options.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("UpdateOptions"))
	default:
		return nil, fmt.Errorf("the operation %q is neither CREATE nor UPDATE", w.Operation)
	}
	if w.User == "" || w.Namespace == "" {
		return nil, fmt.Errorf("user and namespace are required")
	}

	event, err := w.internal(w.Event)
	if err != nil {
		return nil, err
	}
	var stored runtime.Object
	switch {
	case w.Operation == admission.Create && w.Stored != nil:
		return nil, fmt.Errorf("a CREATE has no stored Event")
	case w.Operation == admission.Create:
		rest.WipeObjectMetaSystemFields(event)
	case w.Stored == nil:
		stored = event
	default:
		if stored, err = w.internal(w.Stored); err != nil {
			return nil, err
		}
	}

	attributes := admission.NewAttributesRecord(event, stored, eventKind, w.Namespace, event.Name, eventResource, "",
		w.Operation, options, w.DryRun, w.userInfo())
	versioned, err := admission.NewVersionedAttributes(attributes, eventKind, objects)
	if err == nil && asUnstructured {
		err = toUnstructured(&versioned.VersionedObject, &versioned.VersionedOldObject)
	}
	return versioned, err
}

// internal returns an Event of the request's namespace in the internal version.
func (w *write) internal(versioned *corev1.Event) (*core.Event, error) {
	// The API server adds what the body lacks, and refuses other kinds.
	version, kind := eventKind.ToAPIVersionAndKind()
	if v, k := versioned.APIVersion, versioned.Kind; (v != "" && v != version) || (k != "" && k != kind) {
		return nil, fmt.Errorf("the object is of the kind %s %s, not %s %s", v, k, version, kind)
	}
	legacyscheme.Scheme.Default(versioned)
	event := &core.Event{}
	if err := legacyscheme.Scheme.Convert(versioned, event, nil); err != nil {
		return nil, err
	}
	return event, rest.EnsureObjectNamespaceMatchesRequestNamespace(w.Namespace, event)
}

// userInfo returns the user with the groups that the API server derives from a name.
func (w *write) userInfo() user.Info {
	var groups []string
	if namespace, _, err := serviceaccount.SplitUsername(w.User); err == nil {
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	return &user.DefaultInfo{Name: w.User, Groups: append(groups, user.AllAuthenticated)}
}

// toUnstructured replaces objects with what API servers before 1.37 evaluate conditions for.
func toUnstructured(lazy ...*admission.LazyObject) error {
	for _, object := range lazy {
		if object.Object() == nil {
			continue
		}
		converted, err := admission.ConvertObjectToUnstructured(object.Object())
		if err != nil {
			return err
		}
		object.Set(converted)
	}
	return nil
}
