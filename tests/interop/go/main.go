// Command peer is a Go client that does what it is told: one JSON request per line on stdin, one JSON answer per
// line on stdout.
//
// It owns the line protocol (described in clients.py). Requests run one after the other; consumed messages are written
// as events from the client's own goroutines. The process ends when stdin does.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// lineBytesMax holds a 4 MiB body as Base64 and its surroundings.
const lineBytesMax = 8 << 20

type request struct {
	ID          int       `json:"id"`
	Verb        string    `json:"verb"`
	NameServer  string    `json:"namesrv"`
	Topic       string    `json:"topic"`
	Mode        string    `json:"mode"`
	Compression string    `json:"compression"`
	Messages    []message `json:"messages"`
	Listener    string    `json:"listener"`
	Group       string    `json:"group"`
	Filter      string    `json:"filter"`
	SQL         string    `json:"sql"`
	Ordered     bool      `json:"ordered"`
	Broadcast   bool      `json:"broadcast"`
	Failing     bool      `json:"failing"`
	Retries     int32     `json:"retries"`
	API         string    `json:"api"`
	Count       int       `json:"count"`
	TimeoutMs   int       `json:"timeout_ms"`
	Trace       bool      `json:"trace"`
	Decision    string    `json:"decision"`
	Answer      string    `json:"answer"`
	AccessKey   string    `json:"access_key"`
	SecretKey   string    `json:"secret_key"`
	TLS         bool      `json:"tls"`
}

type answer struct {
	ID    int    `json:"id"`
	OK    any    `json:"ok,omitempty"`
	Error string `json:"error,omitempty"`
}

type lines struct {
	mutex sync.Mutex
	out   *bufio.Writer
}

func (l *lines) write(value any) {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.out.Write(append(encoded, '\n'))
	l.out.Flush()
}

func main() {
	out := &lines{out: bufio.NewWriter(os.Stdout)}
	os.Stdout = os.Stderr // Whatever the library prints must not break the protocol.
	producers := newProducers()
	listeners := newListeners(out)
	transactions := newTransactions(out)
	asking := newRequests()

	requests := bufio.NewReaderSize(os.Stdin, lineBytesMax)
	for {
		line, err := requests.ReadBytes('\n')
		if err == io.EOF {
			os.Exit(0)
		}
		var asked request
		if err == nil {
			err = json.Unmarshal(line, &asked)
		}
		var ok any
		if err == nil {
			ok, err = answerTo(&asked, producers, listeners, transactions, asking)
		}
		if err != nil {
			out.write(answer{ID: asked.ID, Error: err.Error()})
		} else {
			out.write(answer{ID: asked.ID, OK: ok})
		}
	}
}

func answerTo(
	asked *request, producers *producers, listeners *listeners, transactions *transactions, asking *requests,
) (any, error) {
	switch asked.Verb {
	case "send":
		return producers.send(asked)
	case "listen":
		return done, listeners.start(asked)
	case "stop":
		return done, listeners.stop(asked.Listener)
	case "pull":
		return pull(asked)
	case "transact":
		return transactions.transact(asked)
	case "leave":
		return done, transactions.leave(asked.Group)
	case "request":
		return asking.request(asked)
	case "reply":
		return done, asking.reply(asked)
	case "stop-reply":
		return done, asking.stop(asked.Listener)
	}
	return nil, fmt.Errorf("unknown verb %s", asked.Verb)
}

var done = map[string]any{}
