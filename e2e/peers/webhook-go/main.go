// Command webhook-go is a minimal admission webhook in Go: it decodes each AdmissionReview and allows it. Benchmarks
// compare squelch with it.
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
	address := flag.String("address", "127.0.0.1:0", "address to listen on; port 0: any free port")
	certificate := flag.String("certificate", "", "certificate file, PEM")
	key := flag.String("key", "", "key file, PEM")
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
