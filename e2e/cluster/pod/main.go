// Command pod runs in the node's pods other than squelch: one static binary of the standard library, so that no image
// is pulled. The first argument selects the action:
//
//	pod                        waits for SIGTERM (also the sandbox of every pod)
//	pod serve ADDRESS [CODE]   answers every request with this status (200)
//	pod exit CODE              exits at once: a crash-looping pod
//	pod api PATH               sends a GET to the API server as the pod's ServiceAccount, prints status and body
//	pod post URL BODY [N]      posts JSON N times (1), prints status and body of each; accepts any certificate
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Folder of a pod's credentials.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

var errUsage = errors.New("usage: pod [serve ADDRESS [CODE] | exit CODE | api PATH | post URL BODY [N]]")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return wait()
	}
	verb, args := args[0], args[1:]
	switch {
	case verb == "serve" && (len(args) == 1 || len(args) == 2):
		code, err := number(args, 1, http.StatusOK)
		if err != nil {
			return err
		}
		go func() {
			fmt.Fprintln(os.Stderr, "pod:", http.ListenAndServe(args[0], answer(code)))
			os.Exit(1)
		}()
		return wait()
	case verb == "exit" && len(args) == 1:
		code, err := number(args, 0, 0)
		if err != nil {
			return err
		}
		os.Exit(code)
	case verb == "api" && len(args) == 1:
		return askAPI(args[0])
	case verb == "post" && (len(args) == 2 || len(args) == 3):
		times, err := number(args, 2, 1)
		if err != nil {
			return err
		}
		return post(args[0], args[1], times)
	}
	return errUsage
}

// wait returns at SIGTERM or SIGINT. The first process of a sandbox reaps the orphans of the pod if they share its
// process namespace.
func wait() error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for each := range signals {
		if each != syscall.SIGCHLD {
			return nil
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

func answer(code int) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		response.WriteHeader(code)
		fmt.Fprintln(response, http.StatusText(code))
	})
}

// askAPI uses the address and the credentials of every pod.
func askAPI(path string) error {
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequest(http.MethodGet, "https://"+server+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	return printResponse(client(&tls.Config{RootCAs: roots}).Do(request))
}

// post does not verify the certificate, as a forger would not.
func post(url, body string, times int) error {
	client := client(&tls.Config{InsecureSkipVerify: true})
	for range times {
		if err := printResponse(client.Post(url, "application/json", strings.NewReader(body))); err != nil {
			return err
		}
	}
	return nil
}

func client(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: 10 * time.Second}
}

func printResponse(response *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	fmt.Println(response.StatusCode, strings.TrimSpace(string(body)))
	return nil
}

func number(args []string, at, otherwise int) (int, error) {
	if at >= len(args) {
		return otherwise, nil
	}
	return strconv.Atoi(args[at])
}
