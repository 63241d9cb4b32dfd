package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func answer(body string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	allow(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	return recorder
}

func TestAReviewIsAllowedUnderItsUID(t *testing.T) {
	review, err := os.ReadFile("../../../src/webhook/testdata/core_update.json")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.TrimSpace(answer(string(review)).Body.String())
	want := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",` +
		`"response":{"uid":"9d0cf6a1-1b7c-4c41-8f0a-4b1f0e6d2c3a","allowed":true}}`
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOtherBodiesAreRefused(t *testing.T) {
	for _, body := range []string{"", "{}", "no JSON"} {
		if code := answer(body).Code; code != http.StatusBadRequest {
			t.Errorf("%q: %d", body, code)
		}
	}
}
