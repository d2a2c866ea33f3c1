package main

import (
	"context"
	"fmt"
	"os"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const sendTimeout = 10 * time.Second

// producers keeps one producer per name server, way to choose a queue and trace, started on first use.
type producers struct {
	started map[string]rocketmq.Producer
}

func newProducers() *producers {
	return &producers{started: map[string]rocketmq.Producer{}}
}

func (p *producers) send(asked *request) ([]sent, error) {
	isKeyed := asked.Mode == "keyed"
	sender, err := p.producer(asked, isKeyed)
	if err != nil {
		return nil, err
	}
	outgoing := make([]*primitive.Message, 0, len(asked.Messages))
	for _, m := range asked.Messages {
		prepared := m.outgoing(asked.Topic)
		if isKeyed {
			prepared.WithShardingKey(prepared.GetKeys())
		}
		outgoing = append(outgoing, prepared)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	switch asked.Mode {
	case "sync", "keyed":
		results := make([]sent, 0, len(outgoing))
		for _, m := range outgoing {
			result, err := sender.SendSync(ctx, m)
			if err != nil {
				return nil, err
			}
			results = append(results, describeSent(result))
		}
		return results, nil
	case "async":
		return sendAsync(ctx, sender, outgoing)
	case "oneway":
		for _, m := range outgoing {
			if err := sender.SendOneWay(ctx, m); err != nil {
				return nil, err
			}
		}
		return []sent{}, nil
	case "batch":
		result, err := sender.SendSync(ctx, outgoing...)
		if err != nil {
			return nil, err
		}
		return []sent{describeSent(result)}, nil
	}
	return nil, fmt.Errorf("unknown mode %s", asked.Mode)
}

type completion struct {
	index  int
	result *primitive.SendResult
	err    error
}

func sendAsync(ctx context.Context, sender rocketmq.Producer, outgoing []*primitive.Message) ([]sent, error) {
	completions := make(chan completion, len(outgoing))
	for index, m := range outgoing {
		index := index
		callback := func(_ context.Context, result *primitive.SendResult, err error) {
			completions <- completion{index, result, err}
		}
		if err := sender.SendAsync(ctx, callback, m); err != nil {
			return nil, err
		}
	}
	results := make([]sent, len(outgoing))
	for range outgoing {
		select {
		case c := <-completions:
			if c.err != nil {
				return nil, c.err
			}
			results[c.index] = describeSent(c.result)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return results, nil
}

// tracing writes traces to the topic that clients have for them.
func tracing(asked *request) *primitive.TraceConfig {
	return &primitive.TraceConfig{
		Access:   primitive.Local,
		Resolver: primitive.NewPassthroughResolver([]string{asked.NameServer}),
	}
}

func credentials(asked *request) primitive.Credentials {
	return primitive.Credentials{AccessKey: asked.AccessKey, SecretKey: asked.SecretKey}
}

func (p *producers) producer(asked *request, isKeyed bool) (rocketmq.Producer, error) {
	name := fmt.Sprint(asked.NameServer, isKeyed, asked.Trace, asked.TLS, "/", asked.AccessKey, "/", asked.SecretKey)
	if started, ok := p.started[name]; ok {
		return started, nil
	}
	options := []producer.Option{
		producer.WithNameServer(primitive.NamesrvAddr{asked.NameServer}),
		producer.WithGroupName(fmt.Sprintf("interop-go-producer-%d", len(p.started))),
		producer.WithInstanceName(fmt.Sprintf("producer-%d-%d", len(p.started), os.Getpid())),
	}
	if asked.AccessKey != "" {
		options = append(options, producer.WithCredentials(credentials(asked)))
	}
	if asked.TLS {
		encrypted, err := encryptedProducer()
		if err != nil {
			return nil, err
		}
		options = append(options, encrypted...)
	}
	if isKeyed {
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	if asked.Trace {
		options = append(options, producer.WithTrace(tracing(asked)))
	}
	created, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	if err := created.Start(); err != nil {
		return nil, err
	}
	p.started[name] = created
	return created, nil
}
