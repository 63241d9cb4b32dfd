// Command webhook-go is the smallest admission webhook that a person would write in Go: it decodes each
// AdmissionReview and allows it. Benchmarks hold squelch against it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
)

func main() {
	address := flag.String("address", "127.0.0.1:0", "where to listen; port 0: any that is free")
	certificate := flag.String("certificate", "", "file of the certificate, in PEM")
	key := flag.String("key", "", "file of its key, in PEM")
	flag.Parse()

	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on %s\n", listener.Addr())
	log.Fatal(http.ServeTLS(listener, http.HandlerFunc(allow), *certificate, *key))
}

func allow(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if review.Request == nil {
		http.Error(w, "no request in the review", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		log.Print(err)
	}
}
