// Web answers HTTP requests with what a test wants to know about the pod that it runs in: what it reads, where it is,
// and which release it is. With the argument "once" it prints the answer and ends, as a Job does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

// answer returns the answer as JSON. A file that does not exist is empty.
func answer() []byte {
	content, err := os.ReadFile("/config/content")
	if err != nil {
		log.Print(err)
	}
	raw, err := json.Marshal(map[string]string{
		"content": string(content), "release": os.Getenv("RELEASE"), "node": os.Getenv("NODE"), "namespace": os.Getenv("NAMESPACE"),
		"secret": os.Getenv("SECRET"),
	})
	if err != nil {
		log.Fatal(err)
	}
	return append(raw, '\n')
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "once" {
		fmt.Print(string(answer()))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: ":8080", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, err := io.WriteString(w, string(answer())); err != nil {
			log.Print(err)
		}
	})}
	go func() {
		<-ctx.Done()
		if err := server.Shutdown(context.Background()); err != nil {
			log.Print(err)
		}
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		log.Fatal(err)
	}
}
