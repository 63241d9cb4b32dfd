package main

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

var (
	// current compiles the stored conditions of a webhook.
	current = plugincel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	// oldest validates new conditions as Kubernetes 1.30 does: in the environment of the version before it
	// (DefaultCompatibilityVersion in pkg/cel/environment/base.go of k8s.io/apiserver v0.30).
	oldest = plugincel.NewCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 29)))
)

// conditions are the compiled matchConditions of a webhook.
type conditions struct {
	matcher    matchconditions.Matcher
	evaluation *observer
}

// compile returns the conditions as a webhook with the failure policy Ignore evaluates them, or the reason why an API
// server refuses such a webhook.
func compile(list []admissionregistrationv1.MatchCondition) (*conditions, error) {
	url, ignore, none := "https://localhost/", admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "match-conditions"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    "match-conditions.squelch.dev",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url},
			FailurePolicy:           &ignore,
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
			MatchConditions:         list,
		}},
	}
	legacyscheme.Scheme.Default(configuration)
	var internal admissionregistration.MutatingWebhookConfiguration
	if err := legacyscheme.Scheme.Convert(configuration, &internal, nil); err != nil {
		return nil, err
	}
	if errs := validation.ValidateMutatingWebhookConfiguration(&internal); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	for _, condition := range list {
		expression := &matchconditions.MatchCondition{Expression: strings.TrimSpace(condition.Expression)}
		variables := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
		if result := oldest.CompileCELExpression(expression, variables, environment.NewExpressions); result.Error != nil {
			return nil, fmt.Errorf("Kubernetes 1.30 refuses the condition %s: %w", condition.Name, result.Error)
		}
	}
	evaluation := &observer{ConditionCompiler: current}
	hook := webhook.NewMutatingWebhookAccessor("match-conditions", configuration.Name, &configuration.Webhooks[0])
	matcher := hook.GetCompiledMatcher(evaluation)
	if errs := evaluation.CompilationErrors(); len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	return &conditions{matcher, evaluation}, nil
}

// verdict is whether the webhook is called. failed is the error that the failure policy hides; overBudget is whether
// there is no cost because the conditions exceed their budget.
type verdict struct {
	called     bool
	failed     string
	cost       int64
	overBudget bool
}

// evaluate evaluates the conditions for one request. There is no authorizer: conditions that use one fail.
func (c *conditions) evaluate(ctx context.Context, attributes *admission.VersionedAttributes) verdict {
	result := c.matcher.Match(ctx, attributes, nil, nil)
	v := verdict{
		called:     result.Matches,
		cost:       celconfig.RuntimeCELCostBudgetMatchConditions - c.evaluation.remaining,
		overBudget: c.evaluation.err != nil,
	}
	// A false condition has a name, a failed evaluation under Ignore has none.
	if !result.Matches && result.FailedConditionName == "" {
		v.failed = c.evaluation.failure().Error()
	}
	return v
}

// observer is the API server's compiler and the conditions that it compiles. It keeps what an evaluation returns: a
// matcher with the failure policy Ignore returns no errors.
type observer struct {
	plugincel.ConditionCompiler
	plugincel.ConditionEvaluator
	results   []plugincel.EvaluationResult
	remaining int64
	err       error
}

// CompileCondition compiles conditions, of which this observer then keeps the evaluations.
func (o *observer) CompileCondition(
	expressions []plugincel.ExpressionAccessor,
	variables plugincel.OptionalVariableDeclarations,
	mode environment.Type,
) plugincel.ConditionEvaluator {
	o.ConditionEvaluator = o.ConditionCompiler.CompileCondition(expressions, variables, mode)
	return o
}

// ForInput evaluates the conditions.
func (o *observer) ForInput(
	ctx context.Context,
	attributes *admission.VersionedAttributes,
	request *admissionv1.AdmissionRequest,
	variables plugincel.OptionalVariableBindings,
	namespace *corev1.Namespace,
	budget int64,
) ([]plugincel.EvaluationResult, int64, error) {
	o.results, o.remaining, o.err = o.ConditionEvaluator.ForInput(ctx, attributes, request, variables, namespace, budget)
	return o.results, o.remaining, o.err
}

// failure is the error that the matcher would return under the failure policy Fail.
func (o *observer) failure() error {
	if o.err != nil {
		return o.err
	}
	var errs []error
	for _, result := range o.results {
		if result.Error != nil {
			errs = append(errs, result.Error)
		}
	}
	return utilerrors.NewAggregate(errs)
}
